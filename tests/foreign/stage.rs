//! A server with the corpus on it, and the failures found there.

use std::collections::BTreeMap;

use distlock::{Client, ClientBuilder};
use redis::Connection;

use super::PATIENCE;
use super::corpus::shapes;
use super::module::Module;
use super::reading::{Cost, Reading};
use super::support::RedisServer;

pub(crate) struct Stage {
    pub(crate) server: RedisServer,
    pub(crate) connection: Connection,
    /// The keys that must not change.
    corpus: BTreeMap<String, StoredKey>,
    /// The content of its strings, if that is short.
    texts: BTreeMap<String, String>,
    /// The command that reports when a key expires.
    ends: &'static str,
    /// The most bytes that a server may send for an operation.
    pub(crate) most_sent: u64,
    wrong: Vec<String>,
}

/// A key as the server has it.
#[derive(Clone)]
pub(crate) struct StoredKey {
    dump: Vec<u8>,
    of_type: String,
    /// The expiry in ms since 1970, less than zero for a key without one.
    ends: i64,
    /// The uncertainty of the expiry in ms.
    about: i64,
}

impl StoredKey {
    fn is(&self, other: &Self) -> bool {
        let apart = (self.ends - other.ends).abs();
        self.dump == other.dump && self.of_type == other.of_type && apart <= self.about
    }

    fn summary(&self) -> (&str, usize, i64) {
        (&self.of_type, self.dump.len(), self.ends)
    }
}

impl Stage {
    pub(crate) fn start() -> Self {
        let module = Module::compile();
        // A server that cannot load the module does not start, and the test fails.
        let server = RedisServer::start_with(&["--loadmodule", &module.path()]);
        let address = format!("unix:{}", server.socket_path().display());
        let client = redis::Client::open(address).expect("it is an address");
        let connection = client.get_connection_with_timeout(PATIENCE);
        let mut stage = Self {
            server,
            connection: connection.expect("the server is up"),
            corpus: BTreeMap::new(),
            texts: BTreeMap::new(),
            ends: "PEXPIRETIME",
            most_sent: 128 << 10,
            wrong: Vec::new(),
        };
        let ends = redis::cmd(stage.ends)
            .arg("missing")
            .query(&mut stage.connection);
        if ends != Ok(-2) {
            stage.ends = "PTTL";
        }
        let patience = stage.connection.set_read_timeout(Some(PATIENCE));
        patience.expect("a socket has a time-out");
        for shape in shapes() {
            for command in shape.commands() {
                let done: redis::RedisResult<redis::Value> = command.query(&mut stage.connection);
                done.unwrap_or_else(|error| panic!("{}: {error}", shape.what));
            }
            let kept = stage.kept(shape.key).expect("it was made");
            // The key is restored as after a restart of the server. A hash that has just grown is rearranged by reads.
            stage.put_back(shape.key, &kept);
            let kept = stage.kept(shape.key).expect("it was put back");
            if kept.of_type == "string" && kept.dump.len() < 100 {
                let get = redis::cmd("GET")
                    .arg(shape.key)
                    .query(&mut stage.connection);
                let text: Vec<u8> = get.expect("a string");
                let text = String::from_utf8_lossy(&text).into_owned();
                stage.texts.insert(shape.key.to_owned(), text);
            }
            stage.corpus.insert(shape.key.to_owned(), kept);
        }
        stage
    }

    pub(crate) async fn client(&self, parameters: &str) -> Client {
        let client = self.builder(parameters).connect().await;
        client.expect("the server is up")
    }

    pub(crate) fn builder(&self, parameters: &str) -> ClientBuilder {
        let url = format!("{}{parameters}", self.server.url());
        let builder = Client::builder(&url).command_timeout(PATIENCE);
        builder.connect_timeout(PATIENCE)
    }

    pub(crate) fn reading(&mut self) -> Reading {
        Reading::take(&mut self.connection)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.corpus.contains_key(key)
    }

    pub(crate) fn is_string(&self, key: &str) -> bool {
        self.corpus
            .get(key)
            .is_some_and(|kept| kept.of_type == "string")
    }

    pub(crate) fn is_small(&self, key: &str) -> bool {
        self.corpus
            .get(key)
            .is_some_and(|kept| kept.dump.len() < LARGE)
    }

    /// Returns whether a key is a string with an integer in it, as the server writes them.
    pub(crate) fn is_integer(&self, key: &str) -> bool {
        self.texts.get(key).is_some_and(|text| {
            let number: Option<i64> = text.parse().ok();
            number.is_some_and(|number| number.to_string() == *text && number.abs() < 1 << 53)
        })
    }

    /// Returns whether a key is a string with an owner in it: a simple lock, whichever program made it.
    pub(crate) fn is_owner(&self, key: &str) -> bool {
        self.texts.get(key).is_some_and(|text| {
            let owner = text.split_once(':');
            owner
                .is_some_and(|(client, thread)| client.len() == 36 && thread.parse::<i64>().is_ok())
        })
    }

    /// Checks that the server has done little since then, and that these keys of the corpus have not changed.
    pub(crate) fn judge(&mut self, what: &str, keys: &[&str], before: Reading) {
        let cost = before.until(self.reading());
        self.bounded(what, cost);
        if cost.writes > 0 {
            self.unchanged(what, keys);
        }
    }

    /// Checks that one operation has cost no more than it may.
    pub(crate) fn bounded(&mut self, what: &str, cost: Cost) {
        if cost.commands > 1_000 || cost.sent > self.most_sent || cost.in_scripts > 1 << 20 {
            self.fail(format!("{what}: {cost:?}"));
        }
    }

    /// Compares these keys, as far as they are of the corpus, with their original content.
    pub(crate) fn unchanged(&mut self, what: &str, keys: &[&str]) {
        let asked = keys
            .iter()
            .filter_map(|key| self.corpus.get_key_value(*key));
        let asked: Vec<(String, StoredKey)> = asked
            .map(|(key, kept)| (key.clone(), kept.clone()))
            .collect();
        let names: Vec<&str> = asked.iter().map(|(key, _)| &**key).collect();
        let now = self.all_kept(&names);
        for ((key, kept), now) in asked.iter().zip(now) {
            if !self.compare(key, kept, now, what) {
                self.put_back(key, kept);
            }
        }
    }

    /// Compares all small keys of the corpus.
    pub(crate) fn all_unchanged(&mut self, what: &str) {
        let small: Vec<_> = shapes()
            .map(|shape| shape.key)
            .filter(|key| self.is_small(key))
            .collect();
        self.unchanged(what, &small);
    }

    /// Removes the keys that operations have left, which are distlock's own. None of them may lack an expiry if the name was refused.
    pub(crate) fn sweep(&mut self, what: &str, was_refused: bool) {
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut self.connection)
            .expect("text");
        for key in keys.iter().filter(|key| !self.corpus.contains_key(*key)) {
            let ends: i64 = redis::cmd("PTTL")
                .arg(key)
                .query(&mut self.connection)
                .expect("a time");
            if was_refused && ends == -1 {
                self.wrong.push(format!("{what}: left `{key}` behind"));
            }
            let _: i64 = redis::cmd("DEL")
                .arg(key)
                .query(&mut self.connection)
                .expect("a count");
        }
    }

    /// Renames a key.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let mut rename = redis::cmd("RENAME");
        let renamed: redis::RedisResult<()> = rename.arg(from).arg(to).query(&mut self.connection);
        if let Err(error) = renamed {
            self.fail(format!("`{from}` has gone: {error}"));
        }
    }

    /// Copies a key to another name, and returns the copy as the server then has it.
    pub(crate) fn copy(&mut self, from: &str, to: &str) -> StoredKey {
        let mut copy = redis::cmd("COPY");
        copy.arg(from).arg(to).arg("REPLACE");
        let copied: bool = copy.query(&mut self.connection).expect("it is there");
        assert!(copied);
        self.kept(to).expect("it was copied")
    }

    /// Returns whether a key is unchanged; if it is not, that is a failure.
    pub(crate) fn is_still(&mut self, key: &str, was: &StoredKey, what: &str) -> bool {
        let now = self.kept(key);
        self.compare(key, was, now, what)
    }

    fn compare(&mut self, key: &str, was: &StoredKey, now: Option<StoredKey>, what: &str) -> bool {
        let is_still = now.as_ref().is_some_and(|now| now.is(was));
        if !is_still {
            let now = now.as_ref().map(StoredKey::summary);
            let was = was.summary();
            self.fail(format!("{what}: `{key}` was {was:?} and is {now:?}"));
        }
        is_still
    }

    pub(crate) fn fail(&mut self, wrong: String) {
        eprintln!("{wrong}");
        self.wrong.push(wrong);
    }

    /// Compares everything, and panics if there was any failure.
    pub(crate) fn end(mut self) {
        for shape in shapes() {
            self.unchanged("in the end", &[shape.key]);
        }
        assert!(
            self.wrong.is_empty(),
            "{} wrong:\n{}",
            self.wrong.len(),
            self.wrong.join("\n")
        );
    }

    pub(crate) fn kept(&mut self, key: &str) -> Option<StoredKey> {
        self.all_kept(&[key]).pop().expect("one was asked for")
    }

    /// Returns the content of these keys, in one request.
    fn all_kept(&mut self, keys: &[&str]) -> Vec<Option<StoredKey>> {
        let mut asked = redis::pipe();
        for key in keys {
            asked.cmd("DUMP").arg(key).cmd("TYPE").arg(key);
            asked.cmd(self.ends).arg(key);
        }
        let now: (i64, i64) = redis::cmd("TIME")
            .query(&mut self.connection)
            .expect("a time");
        let now = now.0 * 1_000 + now.1 / 1_000;
        let answers = asked.query(&mut self.connection);
        let answers: Vec<redis::Value> = answers.expect("the server answers");
        let kept = answers.chunks(3).map(|answer| {
            let [dump, of_type, ends] = answer else {
                panic!("three were asked for: {answer:?}");
            };
            let read = |value: &redis::Value| value.clone();
            let dump: Option<Vec<u8>> = redis::from_redis_value(read(dump)).expect("bytes");
            let of_type = redis::from_redis_value(read(of_type)).expect("text");
            let ends: i64 = redis::from_redis_value(read(ends)).expect("a number");
            // Before 7.0 a server reports only how much time is left.
            let (ends, about) = match self.ends == "PTTL" && ends >= 0 {
                true => (now + ends, 5_000),
                false => (ends, 0),
            };
            dump.map(|dump| StoredKey {
                dump,
                of_type,
                ends,
                about,
            })
        });
        kept.collect()
    }

    fn put_back(&mut self, key: &str, kept: &StoredKey) {
        let mut restore = redis::cmd("RESTORE");
        restore.arg(key).arg(kept.ends.max(0)).arg(&kept.dump);
        restore.arg("REPLACE").arg("ABSTTL");
        let _: () = restore
            .query(&mut self.connection)
            .expect("it was dumped here");
    }
}

/// Keys of more bytes are compared less often.
const LARGE: usize = 16 << 10;
