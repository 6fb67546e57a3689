-- A file as version 6 has written it. Never changed; BOOT stands for the machine's start.
PRAGMA page_size = 1024;
PRAGMA journal_mode = WAL;
PRAGMA application_id = 0x646c636b;
PRAGMA user_version = 6;

CREATE TABLE machine (boot TEXT NOT NULL, clock TEXT NOT NULL DEFAULT 'boottime 0 0');
CREATE TABLE states (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT NOT NULL);
CREATE TABLE clients (
    client TEXT PRIMARY KEY, bound INTEGER NOT NULL, label TEXT, label_until INTEGER
) WITHOUT ROWID;
CREATE TABLE listeners (
    channel TEXT NOT NULL, client TEXT NOT NULL, PRIMARY KEY (channel, client)
) WITHOUT ROWID;
CREATE TABLE journal (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL, owner TEXT NOT NULL, label TEXT, turn TEXT NOT NULL, kind TEXT
);
CREATE TABLE tokens (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL);
CREATE TABLE line (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL, owner TEXT NOT NULL, client TEXT NOT NULL, until INTEGER NOT NULL,
    UNIQUE (name, owner)
);
CREATE INDEX line_by_name ON line (name, id);
CREATE INDEX line_by_client ON line (client);

INSERT INTO machine VALUES ('BOOT', 'CLOCK');
INSERT INTO states VALUES (1, 'nightly', '{"held":{"mutex":{"owner":"71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1","count":2,"until":1000000300000000000,"token":1794832496000001}},"marks":[{"owner":"c0ffee00-2746-4c1e-9f3b-0a5c1c0f9c22:7","attempt":1,"until":1000000300000000000}]}');
INSERT INTO states VALUES (2, 'prices', '{"held":{"read_write":{"until":1000000300000000000,"writer":null,"readers":[{"owner":"71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1","count":1,"until":1000000300000000000}]}},"writers":[{"owner":"c0ffee00-2746-4c1e-9f3b-0a5c1c0f9c22:7","until":1000000300000000000}]}');
INSERT INTO states VALUES (3, 'exports', '{"held":{"tally":{"there":2,"out":[{"id":"71b96ce827460a5c1c109c1100000001","owner":"71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:65536","until":1000000300000000000}]}}}');
INSERT INTO states VALUES (4, 'slots', '{"held":{"counter":3},"deeds":[{"least":"71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1","done":[[1,{"altered":[null,5]}],[2,{"took":2}],[3,"undone"]],"until":1000000300000000000}]}');
INSERT INTO states VALUES (5, 'loaded', '{"held":{"countdown":4},"deeds":[{"least":"71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1","done":[[1,{"altered":[null,4]}]],"until":1000000300000000000}]}');
INSERT INTO clients VALUES ('71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11', 1, 'ada@web1 pid 4242: ./backup.sh', 1000000300000000000);
INSERT INTO clients VALUES ('c0ffee00-2746-4c1e-9f3b-0a5c1c0f9c22', 1, NULL, 0);
INSERT INTO listeners VALUES ('lock:nightly', 'c0ffee00-2746-4c1e-9f3b-0a5c1c0f9c22');
INSERT INTO listeners VALUES ('watch', 'c0ffee00-2746-4c1e-9f3b-0a5c1c0f9c22');
INSERT INTO journal VALUES (1, 'nightly', '71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1', 'ada@web1 pid 4242: ./backup.sh', 'granted', 'fenced');
INSERT INTO tokens VALUES (1, 1794832496000001);
INSERT INTO line VALUES (1, 'nightly', 'c0ffee00-2746-4c1e-9f3b-0a5c1c0f9c22:8', 'c0ffee00-2746-4c1e-9f3b-0a5c1c0f9c22', 1000000015000000000);
