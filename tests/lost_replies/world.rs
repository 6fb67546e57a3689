//! What all cases share: a server, a look at it past the proxy, and a witness of what it executes.

use std::collections::{BTreeMap, BTreeSet};

use distlock::{Client, Lease};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::support::{Family, Plain, Player, RedisServer, Script, Witness};
use super::{COMMAND_TIMEOUT, CONNECT_TIMEOUT, LEASE, PATIENCE};

pub(crate) struct World<F = Plain> {
    pub(crate) server: RedisServer,
    /// Another client, whose network is fine.
    pub(crate) other: Player<F>,
    pub(crate) witness: Witness,
    direct: MultiplexedConnection,
}

impl<F: Family> World<F> {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start();
        Script::make_known(&server);
        let direct = redis::Client::open(server.url()).expect("the url is right");
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let direct = direct.get_multiplexed_async_connection_with_config(&patient);
        let other = Client::builder(&server.url())
            .default_lease(Lease::KeepAlive(LEASE))
            .command_timeout(PATIENCE)
            .connect_timeout(PATIENCE);
        Self {
            witness: Witness::start(&server).await,
            other: Player::new(other.connect().await.expect("the server runs")),
            direct: direct.await.expect("the server runs"),
            server,
        }
    }

    /// Who holds the lock in Redis, and how often.
    pub(crate) async fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        if F::TWO_SIDED {
            return self.ask(redis::cmd("EVAL").arg(RW).arg(1).arg(name)).await;
        }
        if F::COUNTS {
            return self.ask(redis::cmd("HGETALL").arg(name)).await;
        }
        let owner: Option<String> = self.ask(redis::cmd("GET").arg(name)).await;
        owner.map(|owner| (owner, 1)).into_iter().collect()
    }

    /// What Redis has where guards say this.
    pub(crate) fn counted(&self, mut said: BTreeMap<String, u32>) -> BTreeMap<String, u32> {
        if !F::COUNTS {
            said.values_mut().for_each(|count| *count = 1);
        }
        said
    }

    /// Who stands in the store's line for a lock, the first at first. What is kept of it tells of the same ones, and of each
    /// once.
    pub(crate) async fn line(&self, name: &str) -> Vec<String> {
        let key = |what: &str| format!("{what}:{{{name}}}");
        let mut look = redis::pipe();
        look.atomic().lrange(key("redisson_lock_queue"), 0, -1);
        for members in ["redisson_lock_timeout", "distlock_alive"] {
            look.zrange(key(members), 0, -1);
        }
        let mut direct = self.direct.clone();
        let seen = look.query_async(&mut direct).await;
        let (line, timeout, alive): (Vec<String>, BTreeSet<String>, BTreeSet<String>) =
            seen.expect("the server runs");
        let each: BTreeSet<_> = line.iter().cloned().collect();
        assert_eq!(each.len(), line.len(), "twice in the line: {line:?}");
        assert_eq!([&timeout, &alive], [&each; 2], "not those in the line");
        line
    }

    /// The last token that the store has given for a lock.
    pub(crate) async fn last_token(&self, name: &str) -> Option<u64> {
        let key = format!("redisson_lock_token:{{{name}}}");
        self.ask(redis::cmd("GET").arg(key)).await
    }

    /// What is stored of a lock, but for marks, which go by themselves, and the last token, which stays.
    pub(crate) async fn leftovers(&self, name: &str) -> Vec<String> {
        let keys = format!("*{{{name}}}");
        let mut keys: Vec<String> = self.ask(redis::cmd("KEYS").arg(keys)).await;
        keys.retain(|key| {
            !["distlock_undone:", "redisson_lock_token:"]
                .iter()
                .any(|kept| key.starts_with(kept))
        });
        if self.ask(redis::cmd("EXISTS").arg(name)).await {
            keys.push(name.to_owned());
        }
        keys
    }

    /// Milliseconds left; -1 for a key that stays, -2 for one that is not there.
    pub(crate) async fn pttl(&self, key: &str) -> i64 {
        self.ask(redis::cmd("PTTL").arg(key)).await
    }

    /// Asks Redis itself.
    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, cmd: &redis::Cmd) -> T {
        let mut direct = self.direct.clone();
        cmd.query_async(&mut direct).await.expect("the server runs")
    }
}

/// KEYS the lock, whose name has no brace. Its readers and its writer, how often each holds it; and beside them whatever does
/// not fit: a time-out that is nobody's, one that is missing, a writer that waits.
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

/// The client of one case, whose network may break.
pub(crate) async fn client_behind<F: Family>(url: &str) -> Player<F> {
    let client = Client::builder(url)
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(COMMAND_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        // Whoever is next in line gets it through the store.
        .handoff_limit(0);
    let client = client.connect().await;
    Player::new(client.expect("the network is still whole"))
}
