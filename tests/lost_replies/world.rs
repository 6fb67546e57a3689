//! What all cases share: a server, a look at it past the proxy, and a witness of what it executes.

use std::collections::{BTreeMap, BTreeSet};

use distlock::{Client, Lease};
use redis::aio::MultiplexedConnection;

use super::support::{
    Arrangement, Cluster, Family, Plain, Player, Script, Servers, Witness, patient_connection,
};
use super::{COMMAND_TIMEOUT, CONNECT_TIMEOUT, LEASE, PATIENCE};

pub(crate) struct World<F = Plain> {
    /// Of a cluster the server that has all locks is the first.
    pub(crate) server: Servers,
    /// Another client, whose network is fine.
    pub(crate) other: Player<F>,
    pub(crate) witness: Witness,
    direct: MultiplexedConnection,
}

impl<F: Family> World<F> {
    /// As the environment says.
    pub(crate) async fn start() -> Self {
        Self::start_as(Arrangement::named()).await
    }

    pub(crate) async fn start_as(arrangement: Arrangement) -> Self {
        let server = Servers::start(arrangement, Cluster::start_lopsided);
        server.make_known(Script::every_text());
        let direct = patient_connection(&server.own_url()).await;
        let other = Client::builder(&server.url())
            .default_lease(Lease::KeepAlive(LEASE))
            .command_timeout(PATIENCE)
            .connect_timeout(PATIENCE);
        Self {
            witness: Witness::start(&server).await,
            other: Player::new(other.connect().await.expect("the server runs")),
            direct,
            server,
        }
    }

    /// Who holds the lock in Redis, and how often.
    pub(crate) async fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        if F::PERMITS > 0 {
            return self.permits(name).await;
        }
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
            let each = F::PERMITS.max(1);
            said.values_mut().for_each(|count| *count = each);
        }
        said
    }

    /// Who has how many permits; and beside them how many too many or too few there are.
    async fn permits(&self, name: &str) -> BTreeMap<String, u32> {
        let mut look = redis::pipe();
        look.atomic().get(name).zcard(format!("{{{name}}}:timeout"));
        let mut direct = self.direct.clone();
        let seen = look.query_async(&mut direct).await;
        let (there, out): (Option<i64>, i64) = seen.expect("the server runs");
        let seen = self.other.admin().inspect(name).await;
        let seen = seen.expect("its network is fine").into_iter();
        let holders = seen.flat_map(|seen| seen.holders);
        let count = |count| u32::try_from(count).expect("there are few");
        let mut holders: BTreeMap<String, u32> = holders
            .map(|holder| (holder.owner, count(holder.hold_count)))
            .collect();
        // Before the first was asked for nobody has said how many there are.
        if there.is_some_and(|there| there + out != i64::from(F::PERMITS)) {
            holders.insert(format!("{there:?} and {out} out"), 1);
        }
        holders
    }

    /// Who stands in the store's line for a lock, the first at first. What is kept of it tells of the same ones, and of each
    /// once.
    pub(crate) async fn line(&self, name: &str) -> Vec<String> {
        let key = |what: &str| format!("{what}:{{{name}}}");
        let mut look = redis::pipe();
        let (queue, timeout) = match F::PERMITS {
            0 => ("redisson_lock_queue", "redisson_lock_timeout"),
            _ => ("distlock_line", "distlock_alive"),
        };
        look.atomic().lrange(key(queue), 0, -1);
        for members in [timeout, "distlock_alive"] {
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
        // How many permits there are is said once and for all.
        let lock = match F::PERMITS {
            0 => name.to_owned(),
            _ => format!("{{{name}}}:timeout"),
        };
        if self.ask(redis::cmd("EXISTS").arg(&lock)).await {
            keys.push(lock);
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
