//! The state of the store, read in Redisson's format without any of the library's code.

use distlock_sim::{Server, Value};

use crate::faults::Servers;
use crate::workload::Kind;

/// The servers of a scenario, as a judge reads them.
#[derive(Clone, Debug)]
pub(crate) struct Store(Servers);

impl Store {
    pub(crate) const fn new(servers: Servers) -> Self {
        Self(servers)
    }

    /// Returns whether an owner holds a lock, by the server's clock; for a quorum, whether most servers report that it is held.
    pub(crate) fn holds(&self, kind: Kind, name: &str, owner: &str, permits: &[Vec<u8>]) -> bool {
        let servers = self.0.all();
        if kind == Kind::Quorum {
            // A quorum guard does not know the owners that hold it, one on each server.
            let is_held = |server: &&Server| call(server, &["EXISTS", name]) == Value::Integer(1);
            let votes = servers.iter().filter(is_held);
            return votes.count() > servers.len() / 2;
        }
        let server = &servers[0];
        match kind {
            Kind::Simple => call(server, &["GET", name]) == Value::bulk(owner),
            Kind::Permits => {
                let now = now_ms(server);
                let out = format!("{{{name}}}:timeout");
                permits
                    .iter()
                    .all(|permit| score(server, &out, permit) > now)
            }
            Kind::Write => has(server, name, &format!("{owner}:write")),
            Kind::ReadWrite => {
                has(server, name, owner) || has(server, name, &format!("{owner}:write"))
            }
            // The owner may be a writer among several locks.
            Kind::Multi => has(server, name, owner) || has(server, name, &format!("{owner}:write")),
            _ => has(server, name, owner),
        }
    }

    /// Returns the hold count of an owner, if the store has one.
    pub(crate) fn count(&self, kind: Kind, name: &str, owner: &str) -> Option<u64> {
        let field = match kind {
            Kind::Plain | Kind::Fair | Kind::Fenced | Kind::Read => owner.to_owned(),
            Kind::Write => format!("{owner}:write"),
            _ => return None,
        };
        match call(&self.0.all()[0], &["HGET", name, &field]) {
            Value::Bulk(count) => {
                let count = String::from_utf8_lossy(&count).parse();
                Some(count.unwrap_or(u64::MAX))
            }
            _ => Some(0),
        }
    }

    /// Returns the number of a counting semaphore, or of a latch.
    pub(crate) fn number(&self, name: &str) -> i64 {
        match call(&self.0.all()[0], &["GET", name]) {
            Value::Bulk(number) => String::from_utf8_lossy(&number).parse().unwrap_or(i64::MIN),
            _ => 0,
        }
    }

    /// Returns every key of every server, with its value.
    pub(crate) fn keys(&self) -> Vec<(String, String)> {
        let servers = self.0.all();
        let keys = servers.iter().flat_map(Server::keyspace);
        keys.map(|(_, key, state)| {
            let key = String::from_utf8_lossy(&key).into_owned();
            (key, format!("{state:?}"))
        })
        .collect()
    }

    /// Returns whether one of these locks is held, on any server.
    pub(crate) fn is_held(&self, kind: Kind, names: &[&str]) -> Option<String> {
        self.0.all().iter().find_map(|server| {
            names.iter().find_map(|name| {
                let out = format!("{{{name}}}:timeout");
                let key = if kind == Kind::Permits { &out } else { *name };
                let found = match kind {
                    // Expired permits count as available.
                    Kind::Permits => {
                        let from = format!("({}", now_ms(server));
                        call(server, &["ZCOUNT", key, &from, "+inf"]) != Value::Integer(0)
                    }
                    Kind::Counting | Kind::Latch => false,
                    _ => call(server, &["EXISTS", key]) != Value::Integer(0),
                };
                found.then(|| format!("`{key}`: {:?}", self.keys()))
            })
        })
    }
}

fn now_ms(server: &Server) -> i64 {
    let Value::Array(time) = server.call(&[b"TIME"]) else {
        return i64::MAX;
    };
    let number = |value: &Value| match value {
        Value::Bulk(text) => String::from_utf8_lossy(text).parse().unwrap_or(0),
        _ => 0,
    };
    number(&time[0]) * 1000 + number(&time[1]) / 1000
}

/// Returns when a permit expires, in milliseconds.
#[expect(clippy::cast_possible_truncation, reason = "a time fits")]
fn score(server: &Server, key: &str, member: &[u8]) -> i64 {
    match server.call(&[b"ZSCORE", key.as_bytes(), member]) {
        Value::Bulk(score) => String::from_utf8_lossy(&score)
            .parse::<f64>()
            .map_or(0, |score| score as i64),
        Value::Double(score) => score as i64,
        _ => 0,
    }
}

fn has(server: &Server, name: &str, owner: &str) -> bool {
    call(server, &["HEXISTS", name, owner]) == Value::Integer(1)
}

fn call(server: &Server, words: &[&str]) -> Value {
    let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
    server.call(&words)
}
