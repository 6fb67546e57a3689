//! The tables: created from nothing, or migrated from an older version.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::error::{from_sqlite, unusable};
use crate::engine::StoreError;

/// Tells this library's files from others: "dlck".
const APPLICATION_ID: i64 = 0x646c_636b;

/// The migrations, each from the version before. They are never changed, only added to.
const MIGRATIONS: [&str; 6] = [
    "
    CREATE TABLE machine (boot TEXT NOT NULL);
    CREATE TABLE states (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT NOT NULL);
    CREATE TABLE clients (
        client TEXT PRIMARY KEY, bound INTEGER NOT NULL, label TEXT, label_until INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE listeners (
        channel TEXT NOT NULL, client TEXT NOT NULL, PRIMARY KEY (channel, client)
    ) WITHOUT ROWID;
",
    // The ids are never used twice: a gap in them shows a reader that it has missed rows.
    "
    CREATE TABLE journal (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL, owner TEXT NOT NULL, label TEXT, turn TEXT NOT NULL
    );
",
    // The held part of a state names its form.
    "
    UPDATE states SET state = json_remove(
        json_set(state, '$.held', json_object('mutex', json_extract(state, '$.mutex'))), '$.mutex'
    )
    WHERE json_extract(state, '$.mutex') IS NOT NULL;
",
    // One token counter for all locks, and a hold may carry the token of its grant; a row for each
    // waiter for a fair lock, in the order of arrival; states of read/write locks; the kind of lock
    // in the journal.
    "
    CREATE TABLE tokens (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL);
    CREATE TABLE line (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL, owner TEXT NOT NULL, client TEXT NOT NULL, until INTEGER NOT NULL,
        UNIQUE (name, owner)
    );
    CREATE INDEX line_by_name ON line (name, id);
    CREATE INDEX line_by_client ON line (client);
    ALTER TABLE journal ADD COLUMN kind TEXT;
",
    // States of semaphores and latches, and the outcomes of clients' changes to ownerless counters.
    "",
    // The boot and its clock in columns of their own, which were one text; the first time namespace
    // of a machine has no offset.
    "
    ALTER TABLE machine ADD COLUMN clock TEXT NOT NULL DEFAULT 'boottime 0 0';
    UPDATE machine SET
        clock = CASE
            WHEN boot LIKE '% time:[4026531834]' OR boot NOT LIKE '% time:[%' THEN 'boottime 0 0'
            ELSE substr(boot, instr(boot, ' ') + 1)
        END,
        boot = substr(boot, 1, instr(boot || ' ', ' ') - 1);
",
];

/// The version that the migrations lead to.
const CURRENT_VERSION: i64 = 6;

/// Bounds of the pause between two attempts at a file that another process has locked.
const MIN_BACKOFF: Duration = Duration::from_micros(200);
const MAX_BACKOFF: Duration = Duration::from_millis(4);

/// Opens a file and migrates it to the current version.
///
/// An empty file is refused if it `was_made` before: it has lost its contents.
pub(super) fn open(
    path: &Path,
    busy_timeout: Duration,
    was_made: impl Fn() -> bool,
) -> Result<Connection, StoreError> {
    let failed = |error: rusqlite::Error| from_sqlite(path, &error);
    // The file is not created here, because that needs care and is done elsewhere. SQLite's mutex
    // is off, because one thread owns the connection.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags).map_err(failed)?;
    db.busy_handler(Some(busy_handler(busy_timeout)))
        .map_err(failed)?;
    // A checkpoint at the end would make a process wait for the disk twice.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(failed)?;
    let (application, version, empty) = read_header(&db).map_err(failed)?;
    if application == 0 && version == 0 && empty {
        if was_made() {
            // A process may have removed it, and another one be creating it anew.
            pause();
            if was_made() {
                let why = "the file was emptied, and its locks are lost; remove it and the folder beside it to start again";
                return Err(unusable(path, why));
            }
        }
        create(&db, busy_timeout).map_err(failed)?;
    } else if application != APPLICATION_ID {
        let why = "the file is a database of another program; choose another file with sqlite:PATH";
        return Err(unusable(path, why));
    }
    // A commit survives the end of the process at once, and that of the machine after the next
    // checkpoint: no hold survives a restart of the machine anyway.
    db.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 500; PRAGMA journal_size_limit = 1048576")
        .map_err(failed)?;
    if version < CURRENT_VERSION {
        migrate(&mut db, &MIGRATIONS).map_err(failed)?;
        // From now on an empty file is one that was emptied, whatever happens to the log beside it.
        db.execute_batch("PRAGMA wal_checkpoint(PASSIVE)")
            .map_err(failed)?;
    }
    check_version(&db, path)?;
    Ok(db)
}

/// Refuses a file that a newer version has written to: it may mean more than this version can read.
pub(super) fn check_version(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let version = number(db, "PRAGMA user_version").map_err(|error| from_sqlite(path, &error))?;
    if version > CURRENT_VERSION {
        let why = format!(
            "a newer distlock created the file (version {version}, this one supports {CURRENT_VERSION}); upgrade"
        );
        return Err(unusable(path, &why));
    }
    Ok(())
}

/// Reads the application, the version, and whether the file is empty: all at one moment, since
/// another process may just be creating it.
fn read_header(db: &Connection) -> rusqlite::Result<(i64, i64, bool)> {
    let moment = db.unchecked_transaction()?;
    let empty = "SELECT count(*) = 0 FROM sqlite_schema";
    let empty = moment.query_row(empty, [], |row| row.get(0))?;
    let (application, version) = read_version(&moment)?;
    Ok((application, version, empty))
}

/// Initializes an empty file. Several processes may do so at once.
fn create(db: &Connection, busy_timeout: Duration) -> rusqlite::Result<()> {
    let mut waits = busy_handler(busy_timeout);
    let mut tries = 0;
    loop {
        // Small pages: a lock is a line of text, and every process that opens the file reads what
        // was written last.
        let made = db.execute_batch("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL");
        match made {
            // SQLite itself does not wait for this lock.
            Err(error) if is_busy(&error) && waits(tries) => tries += 1,
            other => return other,
        }
    }
}

/// Runs the migrations that are missing, all or none.
fn migrate(db: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let all = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (_, version) = read_version(&all)?;
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    // Another process may have been quicker.
    for step in steps.iter().skip(done) {
        all.execute_batch(step)?;
    }
    if done < steps.len() {
        all.pragma_update(None, "application_id", APPLICATION_ID)?;
        all.pragma_update(
            None,
            "user_version",
            i64::try_from(steps.len()).unwrap_or(0),
        )?;
    }
    all.commit()
}

/// Reads the application and the version.
fn read_version(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let application = number(db, "PRAGMA application_id")?;
    Ok((application, number(db, "PRAGMA user_version")?))
}

/// Runs a query for one number. It is prepared once, because every transaction needs one.
fn number(db: &Connection, sql: &str) -> rusqlite::Result<i64> {
    db.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Sleeps long enough for another process to record that a file is new.
#[expect(clippy::disallowed_methods, reason = "the engine owns the thread")]
fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}

/// Returns a busy handler that sleeps between attempts, a little longer each time, until
/// `busy_timeout` is over.
#[expect(clippy::disallowed_methods, reason = "the engine owns the thread")]
fn busy_handler(busy_timeout: Duration) -> impl FnMut(i32) -> bool + Send + 'static {
    let mut begun = Instant::now();
    move |tries| {
        if tries == 0 {
            begun = Instant::now();
        }
        let longer = MIN_BACKOFF * u32::try_from(tries).unwrap_or(0).saturating_add(1);
        // Jitter: the clock's last digits differ from process to process.
        let odd = Duration::from_nanos(u64::from(begun.elapsed().subsec_nanos() % 200_000));
        std::thread::sleep(longer.min(MAX_BACKOFF) + odd);
        begun.elapsed() < busy_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Moment;
    use crate::protocol::state::State;

    #[test]
    fn migrations_start_at_the_version_of_the_file() {
        let mut db = Connection::open_in_memory().expect("memory is always there");
        migrate(&mut db, &["CREATE TABLE a (x)"]).expect("from nothing");
        db.execute_batch("INSERT INTO a VALUES (1)")
            .expect("it is there");
        let steps = ["CREATE TABLE a (x)", "ALTER TABLE a ADD COLUMN y DEFAULT 7"];
        migrate(&mut db, &steps).expect("from the version before");
        migrate(&mut db, &steps).expect("nothing to do");
        let kept: (i64, i64) = db
            .query_row("SELECT x, y FROM a", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .expect("what was there is still there");
        assert_eq!(kept, (1, 7));
        assert_eq!(read_version(&db).expect("it says"), (APPLICATION_ID, 2));
    }

    #[test]
    fn holds_of_an_older_file_are_kept() {
        let mut db = Connection::open_in_memory().expect("memory is always there");
        migrate(&mut db, &MIGRATIONS[..2]).expect("from nothing");
        let old = r#"{"mutex":{"owner":"01010101-0101-0101-0101-010101010101:1","count":2,"until":7},"marks":[]}"#;
        db.execute("INSERT INTO states (name, state) VALUES ('a', ?1)", [old])
            .expect("it is there");
        migrate(&mut db, &MIGRATIONS).expect("from the version before");
        let new = db.query_row("SELECT state FROM states", [], |row| row.get(0));
        let new: String = new.expect("it is still there");
        let mut state: State = serde_json::from_str(&new).expect("it can be read");
        assert!(state.held("a", Moment::at(Duration::ZERO)).is_some());
    }

    #[test]
    fn migrations_end_at_the_current_version() {
        assert_eq!(i64::try_from(MIGRATIONS.len()), Ok(CURRENT_VERSION));
    }

    #[test]
    fn failed_migration_is_rolled_back() {
        let mut db = Connection::open_in_memory().expect("memory is always there");
        migrate(&mut db, &["CREATE TABLE a (x)"]).expect("from nothing");
        let broken = [
            "CREATE TABLE a (x)",
            "CREATE TABLE b (x)",
            "CREATE TABLE b (x)",
        ];
        migrate(&mut db, &broken).expect_err("there are two of them");
        assert_eq!(read_version(&db).expect("it says"), (APPLICATION_ID, 1));
        let tables: i64 = db
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .expect("it says");
        assert_eq!(tables, 1);
    }
}
