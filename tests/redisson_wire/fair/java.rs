//! Redisson's fair lock as the server sees it: an independent implementation with the same effects.

#![allow(
    dead_code,
    reason = "a program that compiles this module uses a part of it"
)]

use std::time::Duration;

use super::super::support::RedisServer;
use super::super::support::java::{Java, Subscriber, channel, in_slot};
use super::NAME;

/// The threads of one Redisson instance that want one fair lock. It goes by its own clock.
pub(crate) struct RedissonThreads {
    java: Java,
    /// The number of ms by which its clock is ahead of all others.
    pub(crate) ahead: i64,
}

impl RedissonThreads {
    pub(crate) async fn start(server: &RedisServer) -> Self {
        let java = Java::start(server).await;
        Self { java, ahead: 0 }
    }

    /// Returns the owner id of a thread, in the lock and in the queue.
    pub(crate) fn owner(&self, thread: i64) -> String {
        self.java.owner(thread)
    }

    /// Subscribes to the channel of a thread.
    pub(crate) async fn listen(&self, server: &RedisServer, thread: i64) -> Subscriber {
        let channel = format!("{}:{}", channel(NAME), self.owner(thread));
        Subscriber::start(server, &channel).await
    }

    /// Returns `None` if the thread now holds the lock; otherwise the thread is queued, and the value is how long it sleeps, in ms.
    pub(crate) async fn lock(&self, thread: i64, wait: Duration) -> Option<i64> {
        let (wait, now) = (wait.as_millis().to_string(), self.now().await);
        let args = [WATCHDOG, &self.owner(thread), &wait, &now];
        self.eval(LOCK, &[NAME, &queue(), &timeout()], &args).await
    }

    /// Ends the wait of a thread.
    pub(crate) async fn give_up(&self, thread: i64, wait: Duration) {
        let args = [&*self.owner(thread), &wait.as_millis().to_string()];
        let () = self.eval(GIVE_UP, &[&queue(), &timeout()], &args).await;
    }

    /// Returns whether the lock is now free; `None` if another owner holds it.
    pub(crate) async fn unlock(&self, thread: i64) -> Option<bool> {
        let keys = [NAME, &queue(), &timeout(), &channel(NAME)];
        let args = ["0", WATCHDOG, &self.owner(thread), &self.now().await];
        let unlocked: Option<i64> = self.eval(UNLOCK, &keys, &args).await;
        unlocked.map(|freed| freed == 1)
    }

    async fn eval<T: redis::FromRedisValue>(
        &self,
        script: &str,
        keys: &[&str],
        args: &[&str],
    ) -> T {
        let script = format!("{PASS_OVER}{script}");
        self.java.eval(&script, keys, args).await
    }

    /// Returns `System.currentTimeMillis()` of a machine whose clock agrees with the server's except for [`ahead`](Self::ahead).
    async fn now(&self) -> String {
        let (seconds, micros) = self.java.server_time().await;
        (seconds * 1000 + micros / 1000 + self.ahead).to_string()
    }
}

/// Returns the key of the waiters, the head first.
pub(crate) fn queue() -> String {
    in_slot("redisson_lock_queue", NAME)
}

/// Returns the key of the times at which each waiter may be skipped.
pub(crate) fn timeout() -> String {
    in_slot("redisson_lock_timeout", NAME)
}

/// The default wait: `fairLockWaitTimeout`.
pub(crate) const FIVE_MINUTES: Duration = Duration::from_secs(300);
const WATCHDOG: &str = "30000";

/// The beginning of each of its scripts: waiters at the front whose timeout has passed are removed.
const PASS_OVER: &str = "
local function skip_waiter(queue, timeout, now)
  local first = redis.call('LINDEX', queue, 0)
  while first do
    local over = redis.call('ZSCORE', timeout, first)
    if not over or tonumber(over) > tonumber(now) then
      return
    end
    redis.call('ZREM', timeout, first)
    redis.call('LPOP', queue)
    first = redis.call('LINDEX', queue, 0)
  end
end
";

/// KEYS the lock, the queue, the timeouts; ARGV lease, owner, wait, now. A thread that is granted the lock subtracts its own wait from the
/// timeouts of all others.
const LOCK: &str = "
local lock, queue, timeout = KEYS[1], KEYS[2], KEYS[3]
local owner, wait, now = ARGV[2], ARGV[3], ARGV[4]
skip_waiter(queue, timeout, now)
local first = redis.call('LINDEX', queue, 0)
if redis.call('EXISTS', lock) == 0 and (not first or first == owner) then
  redis.call('LPOP', queue)
  redis.call('ZREM', timeout, owner)
  for _, other in ipairs(redis.call('ZRANGE', timeout, 0, -1)) do
    redis.call('ZINCRBY', timeout, '-' .. wait, other)
  end
  redis.call('HSET', lock, owner, 1)
  redis.call('PEXPIRE', lock, ARGV[1])
  return false
end
if redis.call('HEXISTS', lock, owner) == 1 then
  redis.call('HINCRBY', lock, owner, 1)
  redis.call('PEXPIRE', lock, ARGV[1])
  return false
end
if redis.call('ZSCORE', timeout, owner) then
  return math.max(0, redis.call('PTTL', lock))
end
local ttl = redis.call('PTTL', lock)
local last = redis.call('LINDEX', queue, -1)
local score = last and last ~= owner and redis.call('ZSCORE', timeout, last)
if score then
  ttl = tonumber(score) - tonumber(now)
end
if redis.call('ZADD', timeout, string.format('%.0f', ttl + wait + now), owner) == 1 then
  redis.call('RPUSH', queue, owner)
end
return ttl";

/// KEYS the queue, the timeouts; ARGV owner, wait. The wait is subtracted from the timeouts of all waiters behind it.
const GIVE_UP: &str = "
local behind = false
for _, other in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if behind then
    redis.call('ZINCRBY', KEYS[2], '-' .. ARGV[2], other)
  end
  behind = behind or other == ARGV[1]
end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('LREM', KEYS[1], 0, ARGV[1])";

/// KEYS the lock, the queue, the timeouts, the channel; ARGV message, lease, owner, now.
const UNLOCK: &str = "
local lock, queue = KEYS[1], KEYS[2]
skip_waiter(queue, KEYS[3], ARGV[4])
local function tell()
  local first = redis.call('LINDEX', queue, 0)
  if first then
    redis.call('PUBLISH', KEYS[4] .. ':' .. first, ARGV[1])
  end
end
if redis.call('EXISTS', lock) == 0 then
  tell()
  return 1
end
if redis.call('HEXISTS', lock, ARGV[3]) == 0 then
  return false
end
if redis.call('HINCRBY', lock, ARGV[3], -1) > 0 then
  redis.call('PEXPIRE', lock, ARGV[2])
  return 0
end
redis.call('DEL', lock)
tell()
return 1";
