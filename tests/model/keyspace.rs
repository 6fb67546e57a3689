//! Looks at what is left in Redis, also past the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use distlock::internals::engine::Engine;
use distlock::internals::engine::redis::Redis;
use tokio::time::Instant;

use super::support::RedisServer;

/// Everything in Redis.
#[derive(Debug, Default)]
pub(crate) struct Keyspace {
    /// The names that the engine itself lists as locked.
    pub(crate) listed: BTreeSet<String>,
    /// The names with a lock key.
    pub(crate) locks: BTreeSet<String>,
    /// The names with undone acquires, and those.
    pub(crate) undone: BTreeMap<String, BTreeSet<String>>,
}

impl Keyspace {
    /// Reads every key, all of them written since the round was `begun`.
    ///
    /// # Panics
    ///
    /// If one of them is of a sort we do not write, or has no end.
    pub(crate) async fn read(server: &RedisServer, redis: Arc<Redis>, begun: Instant) -> Self {
        let mut listed = Vec::new();
        let mut from = Some(0);
        while let Some(place) = from {
            let page = redis.clone().find("*".into(), place).await;
            let page = page.expect("the server answers");
            listed.extend(page.found);
            from = page.next;
        }
        let found: Vec<(String, String, i64, Vec<String>)> = server.query(&["EVAL", LOOK, "0"]);
        // No mark is older than that, however long a busy machine took.
        let age = i64::try_from(begun.elapsed().as_millis()).expect("a round is short");
        let mut keyspace = Self {
            listed: listed.iter().map(|lock| lock.name.to_string()).collect(),
            ..Self::default()
        };
        for (key, sort, pttl, members) in found {
            assert!(pttl >= 0, "`{key}` has no end");
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
                    assert_eq!(sort, "hash", "`{key}`");
                    keyspace.locks.insert(key);
                }
            }
        }
        keyspace
    }
}

/// Redis counts whole milliseconds and reads its clock now and then.
const GRAIN: i64 = 100;

const LOOK: &str = "
local found = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  local sort = redis.call('TYPE', key).ok
  local members = sort == 'zset' and redis.call('ZRANGE', key, 0, -1) or {}
  found[i] = {key, sort, redis.call('PTTL', key), members}
end
return found";
