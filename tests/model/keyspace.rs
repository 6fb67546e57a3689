//! The remaining content of a store, read through its engine and around it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use distlock::internals::engine::Engine;
use distlock::internals::protocol::{Kind, Moment};
use rusqlite::Connection;
use serde_json::Value;

use super::clock::Clock;
use super::support::RedisServer;

/// The content of a store.
#[derive(Debug, Default)]
pub(crate) struct Keyspace {
    /// The names that the engine itself lists as locked.
    pub(crate) listed: BTreeSet<String>,
    /// The names with a lock key.
    pub(crate) locks: BTreeSet<String>,
    /// The names with tombstones, and their undone acquires.
    pub(crate) undone: BTreeMap<String, BTreeSet<String>>,
}

impl Keyspace {
    /// Reads every key, all of them written since the round was `begun`.
    ///
    /// # Panics
    ///
    /// If a key is of an unknown type, or has no expiry where it should have one.
    pub(crate) async fn of_redis(
        server: &RedisServer,
        redis: Arc<dyn Engine>,
        begun: Moment,
    ) -> Self {
        let (listed, semaphores) = listed(redis).await;
        let found: Vec<(String, String, i64, Vec<String>)> = server.query(&["EVAL", LOOK, "0"]);
        // No tombstone is older than the round, however long a busy machine took.
        let age =
            i64::try_from(Clock::Wall.now().since(begun).as_millis()).expect("a round is short");
        let mut keyspace = Self {
            listed,
            ..Self::default()
        };
        for (key, sort, pttl, members) in found {
            if key.starts_with("redisson_lock_token:{") {
                assert_eq!((&*sort, pttl), ("string", -1), "`{key}` is for ever");
                continue;
            }
            // The number of a semaphore, which its users have set, and its permits in use.
            if members == ["a number"] || members == ["nothing is out"] {
                assert_eq!(pttl, -1, "`{key}` is for ever");
                continue;
            }
            if members == ["something is out"] {
                assert_eq!(pttl, -1, "`{key}` is for ever");
                let name = key.strip_prefix('{');
                let name = name.and_then(|key| key.strip_suffix("}:timeout"));
                keyspace.locks.insert(name.expect("a name").to_owned());
                continue;
            }
            assert!(pttl >= 0, "`{key}` has no end");
            if PRIVATE.iter().any(|part| key.contains(part)) {
                continue;
            }
            let undone = key.strip_prefix("distlock_undone:{");
            match undone.and_then(|rest| rest.strip_suffix('}')) {
                Some(name) => {
                    assert_eq!(sort, "zset", "`{key}`");
                    let whole = pttl + age + GRAIN;
                    assert!(whole >= 5 * 60_000, "`{key}` is forgotten in {pttl} ms");
                    let members = members.into_iter().collect();
                    keyspace.undone.insert(name.to_owned(), members);
                }
                None => {
                    assert!(sort == "hash" || sort == "string", "`{key}`: {sort}");
                    keyspace.locks.insert(key);
                }
            }
        }
        // Expired permits stay until the next request; a listing of semaphores checks each one.
        let out = semaphores.intersection(&keyspace.locks).cloned();
        keyspace.listed.extend(out);
        keyspace
    }

    /// Reads every row that has not expired.
    pub(crate) async fn of_file(file: &Path, engine: Arc<dyn Engine>, now: Moment) -> Self {
        let (mut listed, semaphores) = listed(engine).await;
        listed.extend(semaphores);
        let mut keyspace = Self {
            listed,
            ..Self::default()
        };
        let now = now.as_nanos();
        let lives = |thing: &Value| thing["until"].as_u64().is_some_and(|until| until > now);
        let database = Connection::open(file).expect("it is there");
        let mut rows = database
            .prepare("SELECT name, state FROM states")
            .expect("it is ours");
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        for row in rows.expect("it is ours") {
            let (name, state): (String, String) = row.expect("it is text");
            let state: Value = serde_json::from_str(&state).expect("it is JSON");
            let held = state["held"].as_object().into_iter().flatten();
            let is_out = |lock: &Value| lock["out"].as_array().into_iter().flatten().any(lives);
            if held
                .map(|(_, lock)| lock)
                .any(|lock| lives(lock) || is_out(lock))
            {
                keyspace.locks.insert(name.clone());
            }
            let marks = state["marks"].as_array().into_iter().flatten();
            let mark = |mark: &Value| {
                let owner = mark["owner"].as_str().expect("an owner");
                format!("{owner}#{}", mark["attempt"])
            };
            let marks: BTreeSet<String> = marks.filter(|mark| lives(mark)).map(mark).collect();
            if !marks.is_empty() {
                keyspace.undone.insert(name, marks);
            }
        }
        keyspace
    }

    /// Returns the number of listeners of all clients.
    pub(crate) fn listeners(file: &Path) -> i64 {
        let database = Connection::open(file).expect("it is there");
        let count = database.query_row("SELECT count(*) FROM listeners", [], |row| row.get(0));
        count.expect("it is ours")
    }
}

/// Returns the names that an engine lists as locked, and those of semaphores.
async fn listed(engine: Arc<dyn Engine>) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut listed, mut semaphores) = (BTreeSet::new(), BTreeSet::new());
    let mut from = Some(0);
    while let Some(place) = from {
        let page = engine.clone().scan("*".into(), place).await;
        let page = page.expect("the store answers");
        for lock in page.found {
            let names = match lock.kind {
                Kind::Semaphore => &mut semaphores,
                _ => &mut listed,
            };
            names.insert(lock.name.to_string());
        }
        from = page.next;
    }
    (listed, semaphores)
}

/// Parts of the names of auxiliary keys: of waiters, of each reader, of permit holders, and of executed counter requests.
const PRIVATE: [&str; 8] = [
    "distlock_clients:{",
    "distlock_done:{",
    "distlock_line:{",
    "redisson_lock_queue:{",
    "redisson_lock_timeout:{",
    "distlock_alive:{",
    "distlock_writers:{",
    ":rwlock_timeout:",
];

/// Redis counts whole milliseconds and reads its clock now and then.
const GRAIN: i64 = 100;

const LOOK: &str = "
local found = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  local sort = redis.call('TYPE', key).ok
  local members = sort == 'zset' and string.find(key, 'distlock_undone', 1, true)
    and redis.call('ZRANGE', key, 0, -1) or {}
  if sort == 'string' and not string.find(key, ':', 1, true) and tonumber(redis.call('GET', key)) then
    members = {'a number'}
  end
  if string.find(key, '}:timeout', 1, true) then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local out = redis.call('ZCOUNT', key, '(' .. string.format('%.0f', now), '+inf') > 0
    members = {out and 'something is out' or 'nothing is out'}
  end
  found[i] = {key, sort, redis.call('PTTL', key), members}
end
return found";
