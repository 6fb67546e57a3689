//! Redisson's read/write lock, as the server sees it.

use std::sync::atomic::Ordering;

use super::{Java, in_slot};

impl Java {
    /// Locks for reading. Returns `None` if the thread reads now, or else the lock's remaining TTL.
    pub(crate) async fn read_lock(&self, name: &str, thread: i64, lease: &str) -> Option<i64> {
        let owner = self.owner(thread);
        let keys = [name, &timeouts(name, &owner)];
        let writer = format!("{owner}:write");
        self.eval(READ_LOCK, &keys, &[lease, &owner, &writer]).await
    }

    /// Unlocks a reader. Returns whether the lock is free now; `None` if the thread did not read.
    pub(crate) async fn read_unlock(&self, name: &str, thread: i64) -> Option<bool> {
        let owner = self.owner(thread);
        let (latch, channel) = (self.latch(name), rw_channel(name));
        let keys = [
            name,
            &channel,
            &timeouts(name, &owner),
            &in_braces(name),
            &latch,
        ];
        let args = ["0", &owner, "PUBLISH", "16000"];
        let unlocked: Option<i64> = self.eval(READ_UNLOCK, &keys, &args).await;
        let _: i64 = self.send(::redis::cmd("DEL").arg(latch)).await;
        unlocked.map(|freed| freed == 1)
    }

    /// Locks for writing. Returns `None` if the thread writes now, or else the lock's remaining TTL.
    pub(crate) async fn write_lock(&self, name: &str, thread: i64, lease: &str) -> Option<i64> {
        let writer = format!("{}:write", self.owner(thread));
        self.eval(WRITE_LOCK, &[name], &[lease, &writer]).await
    }

    /// Runs one tick of the readers' watchdog with this time-out in ms. Returns whether the thread still reads.
    pub(crate) async fn renew_read(&self, name: &str, thread: i64, timeout: &str) -> bool {
        let keys = [name, &in_braces(name)];
        let args = [timeout, &self.owner(thread)];
        let renewed: i64 = self.eval(RENEW_READ, &keys, &args).await;
        renewed == 1
    }

    fn latch(&self, name: &str) -> String {
        let request = self.unlocks.fetch_add(1, Ordering::Relaxed);
        in_slot("redisson_unlock_latch", name) + &format!(":{request:032x}")
    }
}

/// Returns the channel on which releases of a read/write lock are announced.
pub(crate) fn rw_channel(name: &str) -> String {
    in_slot("redisson_rwlock", name)
}

/// Returns the key that expires when this hold of a reader does; `time` is the number of the hold.
pub(crate) fn timeout_key(name: &str, owner: &str, time: u32) -> String {
    format!("{}:{time}", timeouts(name, owner))
}

fn timeouts(name: &str, owner: &str) -> String {
    format!("{}:{owner}:rwlock_timeout", in_braces(name))
}

fn in_braces(name: &str) -> String {
    match name.contains('{') {
        true => name.to_owned(),
        false => format!("{{{name}}}"),
    }
}

/// KEYS the lock, the prefix of the reader's time-out keys; ARGV lease, reader, the same thread as a writer.
const READ_LOCK: &str = "
local lock, lease = KEYS[1], tonumber(ARGV[1])
local mode = redis.call('HGET', lock, 'mode')
if mode == 'write' and redis.call('HEXISTS', lock, ARGV[3]) == 0 then
  return redis.call('PTTL', lock)
end
if not mode then
  redis.call('HSET', lock, 'mode', 'read')
end
local times = redis.call('HINCRBY', lock, ARGV[2], 1)
redis.call('SET', KEYS[2] .. ':' .. times, '1', 'PX', lease)
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease))
return false";

/// KEYS the lock, its channel, the prefix of the reader's time-out keys, the prefix of all time-out keys, the latch; ARGV
/// message, reader, the publish command, the latch's TTL.
const READ_UNLOCK: &str = "
local lock, latch, reader = KEYS[1], KEYS[5], ARGV[2]
local function done(freed)
  redis.call('SET', latch, freed, 'PX', ARGV[4])
  return tonumber(freed)
end
local before = redis.call('GET', latch)
if before then
  return tonumber(before)
end
local mode = redis.call('HGET', lock, 'mode')
if not mode then
  redis.call(ARGV[3], KEYS[2], ARGV[1])
  done('1')
  return false
end
if redis.call('HEXISTS', lock, reader) == 0 then
  return false
end
local times = redis.call('HINCRBY', lock, reader, -1)
if times == 0 then
  redis.call('HDEL', lock, reader)
end
redis.call('DEL', KEYS[3] .. ':' .. (times + 1))
if redis.call('HLEN', lock) > 1 then
  local longest = -3
  for _, field in ipairs(redis.call('HKEYS', lock)) do
    for i = tonumber(redis.call('HGET', lock, field)) or 0, 1, -1 do
      local key = KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i
      longest = math.max(longest, redis.call('PTTL', key))
    end
  end
  if longest > 0 then
    redis.call('PEXPIRE', lock, longest)
    return done('0')
  end
  if mode == 'write' then
    return done('0')
  end
end
redis.call('DEL', lock)
redis.call(ARGV[3], KEYS[2], ARGV[1])
return done('1')";

/// KEYS the lock; ARGV lease, writer. A reentry adds the lease to the remaining TTL.
const WRITE_LOCK: &str = "
local lock = KEYS[1]
local mode = redis.call('HGET', lock, 'mode')
if not mode then
  redis.call('HSET', lock, 'mode', 'write', ARGV[2], 1)
  redis.call('PEXPIRE', lock, ARGV[1])
  return false
end
local left = redis.call('PTTL', lock)
if mode == 'write' and redis.call('HEXISTS', lock, ARGV[2]) == 1 then
  redis.call('HINCRBY', lock, ARGV[2], 1)
  redis.call('PEXPIRE', lock, left + ARGV[1])
  return false
end
return left";

/// KEYS the lock, the prefix of all time-out keys; ARGV the time-out, reader. It sets the TTLs, whatever they were before.
const RENEW_READ: &str = "
local times = redis.call('HGET', KEYS[1], ARGV[2])
if not times then
  return 0
end
for i = tonumber(times), 1, -1 do
  redis.call('PEXPIRE', KEYS[2] .. ':' .. ARGV[2] .. ':rwlock_timeout:' .. i, ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1";
