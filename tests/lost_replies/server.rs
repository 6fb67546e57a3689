//! A server, a view of it past the proxies, and a witness of the commands that it executes.

use std::collections::{BTreeMap, BTreeSet};

use distlock::Lease;

use super::{COMMAND_TIMEOUT, CONNECT_TIMEOUT, LEASE, PATIENCE};
use crate::support::{
    ChaosProxy, CommandMonitor, Family, Plain, Player, RedisServer, Script, builder,
};

pub(crate) struct TestServer<F = Plain> {
    pub(crate) redis: RedisServer,
    /// Another client, whose network is fine.
    pub(crate) other: Player<F>,
    pub(crate) witness: CommandMonitor,
}

impl<F: Family> TestServer<F> {
    pub(crate) async fn start() -> Self {
        let redis = RedisServer::start();
        Script::load_all(&redis);
        let other = builder(&redis.url())
            .default_lease(Lease::KeepAlive(LEASE))
            .command_timeout(PATIENCE);
        Self {
            witness: CommandMonitor::start(&redis).await,
            other: Player::new(other.connect().await.expect("the server runs")),
            redis,
        }
    }

    pub(crate) fn proxy(&self) -> ChaosProxy {
        ChaosProxy::start(self.redis.addr())
    }

    /// Returns the owners of the lock in Redis, and how often each holds it.
    pub(crate) async fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        if F::PERMITS > 0 {
            return self.permits(name).await;
        }
        if F::TWO_SIDED {
            return self.redis.query(&["EVAL", RW, "1", name]);
        }
        if F::COUNTS {
            return self.redis.query(&["HGETALL", name]);
        }
        let owner: Option<String> = self.redis.query(&["GET", name]);
        owner.map(|owner| (owner, 1)).into_iter().collect()
    }

    /// Converts the holds that guards report into the holds that Redis counts.
    pub(crate) fn counted(&self, mut said: BTreeMap<String, u32>) -> BTreeMap<String, u32> {
        if !F::COUNTS {
            let each = F::PERMITS.max(1);
            said.values_mut().for_each(|count| *count = each);
        }
        said
    }

    /// Returns the owners of permits, and an extra entry if the number of permits is wrong.
    async fn permits(&self, name: &str) -> BTreeMap<String, u32> {
        let seen = self.other.admin().inspect(name).await;
        let seen = seen.expect("its network is fine").into_iter();
        let holders = seen.flat_map(|seen| seen.holders);
        let count = |count| u32::try_from(count).expect("there are few");
        let mut holders: BTreeMap<String, u32> = holders
            .map(|holder| (holder.owner, count(holder.hold_count)))
            .collect();
        let available: Option<i64> = self.redis.query(&["GET", name]);
        let out: i64 = self.redis.query(&["ZCARD", &format!("{{{name}}}:timeout")]);
        // Before the first request the store has no number of permits.
        if available.is_some_and(|available| available + out != i64::from(F::PERMITS)) {
            holders.insert(format!("{available:?} and {out} out"), 1);
        }
        holders
    }

    /// Returns the store's queue for a lock, head first. All keys that belong to it name the same owners, each once.
    pub(crate) fn queue(&self, name: &str) -> Vec<String> {
        let key = |what: &str| format!("{what}:{{{name}}}");
        let (queue, timeouts) = match F::PERMITS {
            0 => ("redisson_lock_queue", "redisson_lock_timeout"),
            _ => ("distlock_line", "distlock_alive"),
        };
        let queue: Vec<String> = self.redis.query(&["LRANGE", &key(queue), "0", "-1"]);
        let each: BTreeSet<_> = queue.iter().cloned().collect();
        assert_eq!(each.len(), queue.len(), "twice in the queue: {queue:?}");
        for members in [timeouts, "distlock_alive"] {
            let members: BTreeSet<String> = self.redis.query(&["ZRANGE", &key(members), "0", "-1"]);
            assert_eq!(members, each, "not those in the queue");
        }
        queue
    }

    /// Returns the last token that the store has granted for a lock.
    pub(crate) fn last_token(&self, name: &str) -> Option<u64> {
        let key = format!("redisson_lock_token:{{{name}}}");
        self.redis.query(&["GET", &key])
    }

    /// Checks that nothing is stored of a lock, except tombstones, which expire, and the last token, which stays.
    pub(crate) fn nothing_is_left(&self, name: &str) {
        let tombstones = format!("distlock_undone:{{{name}}}");
        let mut keys = self.redis.keys();
        keys.retain(|key| key == name || key.contains(&format!("{{{name}}}")));
        // The number of permits is stored permanently.
        keys.retain(|key| F::PERMITS == 0 || key != name);
        keys.retain(|key| *key != tombstones && !key.starts_with("redisson_lock_token:"));
        assert_eq!(keys, [""; 0], "a ghost");
        let left = self.redis.pttl(&tombstones);
        assert!(
            left != -1 && left <= 300_000,
            "tombstones stay for {left} ms"
        );
    }
}

/// Takes the lock, whose name has no brace, in KEYS. Returns its readers and its writer, with their hold counts, and an extra entry for
/// whatever does not fit: a time-out without a reader, a missing time-out, a writer that waits.
const RW: &str = "
local lock, base, found, known = KEYS[1], '{' .. KEYS[1] .. '}:', {}, {}
local fields = redis.call('HGETALL', lock)
for i = 1, #fields, 2 do
  local field, times = fields[i], fields[i + 1]
  if field ~= 'mode' then
    local owner, writers = string.gsub(field, ':write$', '')
    found[#found + 1], found[#found + 2] = owner, times
    for number = 1, writers == 0 and tonumber(times) or 0 do
      local key = base .. owner .. ':rwlock_timeout:' .. number
      known[key] = true
      if redis.call('PTTL', key) <= 0 then
        found[#found + 1], found[#found + 2] = 'no ' .. key, '1'
      end
    end
  end
end
for _, key in ipairs(redis.call('KEYS', base .. '*')) do
  if not known[key] then
    found[#found + 1], found[#found + 2] = key, '1'
  end
end
-- A ghost that has been seen is not to go by itself.
local writers = 'distlock_writers:{' .. lock .. '}'
redis.call('PERSIST', writers)
for _, writer in ipairs(redis.call('ZRANGE', writers, 0, -1)) do
  found[#found + 1], found[#found + 2] = writer .. ' waits', '1'
end
return found";

/// Returns the client of one case, whose network may break.
pub(crate) async fn client_behind<F: Family>(proxy: &ChaosProxy, parameters: &str) -> Player<F> {
    let client = builder(&proxy.url_with(parameters))
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(COMMAND_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        // The next waiter is granted the lock through the store.
        .handoff_limit(0);
    let client = client.connect().await;
    Player::new(client.expect("the network is still whole"))
}

/// Waits until the server has executed every request that it was ever sent through the proxy.
pub(crate) async fn everything_arrives(proxy: &ChaosProxy) {
    crate::support::eventually(PATIENCE, "all requests arrive", async || {
        proxy.unanswered() == 0
    })
    .await;
}
