//! A Java client as the server sees it: Redisson's commands with Redisson's effects.
//!
//! The scripts are rewritten from what Redisson's scripts do: their state and messages must be compatible, not their text.

#[path = "java/rw.rs"]
mod rw;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::redis::FromRedisValue;
use ::redis::aio::MultiplexedConnection;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::Instant;

pub(crate) use self::rw::{rw_channel, timeout_key};
use super::redis::{RedisServer, patient_connection};
use super::resp::{Frames, words};
use super::transport::{Stream, connect};

/// A Redisson instance; its threads are distinguished by number.
pub(crate) struct Java {
    connection: MultiplexedConnection,
    unlocks: AtomicU32,
}

impl Java {
    pub(crate) async fn start(server: &RedisServer) -> Self {
        Self {
            connection: patient_connection(&server.own_url()).await,
            unlocks: AtomicU32::new(0),
        }
    }

    /// Returns the owner of a thread, as it appears in a lock's hash.
    pub(crate) fn owner(&self, thread: i64) -> String {
        format!("{UUID}:{thread}")
    }

    /// Locks for a thread. Returns `None` if the thread holds the lock now, or else the holder's PTTL.
    pub(crate) async fn lock(&self, name: &str, thread: i64, lease: &str) -> Option<i64> {
        self.eval(LOCK, &[name], &[lease, &self.owner(thread)])
            .await
    }

    /// Runs `tryLock(wait, lease)`: tries, subscribes, tries again, and then after every message or lease.
    pub(crate) async fn try_lock(
        &self,
        server: &RedisServer,
        name: &str,
        thread: i64,
        wait: Duration,
    ) -> bool {
        let deadline = Instant::now() + wait;
        if self.lock(name, thread, WATCHDOG).await.is_none() {
            return true;
        }
        let mut subscriber = Subscriber::start(server, &channel(name)).await;
        let mut got = false;
        while Instant::now() < deadline {
            let Some(pttl) = self.lock(name, thread, WATCHDOG).await else {
                got = true;
                break;
            };
            let ttl = u64::try_from(pttl).map_or(Duration::MAX, Duration::from_millis);
            let left = deadline.saturating_duration_since(Instant::now());
            // Without a message it tries again when the holder's lease expires.
            let _ = tokio::time::timeout(left.min(ttl), subscriber.message()).await;
        }
        subscriber.unsubscribe().await;
        got
    }

    /// Unlocks for a thread. Returns whether the lock is free now; `None` if the thread did not hold it.
    pub(crate) async fn unlock(&self, name: &str, thread: i64) -> Option<bool> {
        let request = self.unlocks.fetch_add(1, Ordering::Relaxed);
        let latch = in_slot("redisson_unlock_latch", name) + &format!(":{request:032x}");
        let keys = [name, &channel(name), &latch];
        let args = ["0", WATCHDOG, &self.owner(thread), "PUBLISH", "16000"];
        let unlocked: Option<i64> = self.eval(UNLOCK, &keys, &args).await;
        // Redisson does not wait for this command.
        let _: i64 = self.send(::redis::cmd("DEL").arg(latch)).await;
        unlocked.map(|freed| freed == 1)
    }

    pub(crate) async fn eval<T: FromRedisValue>(
        &self,
        script: &str,
        keys: &[&str],
        args: &[&str],
    ) -> T {
        let mut eval = ::redis::cmd("EVAL");
        eval.arg(script).arg(keys.len()).arg(keys).arg(args);
        self.send(&eval).await
    }

    /// Returns the server's clock, in seconds and microseconds.
    pub(crate) async fn server_time(&self) -> (i64, i64) {
        self.send(&::redis::cmd("TIME")).await
    }

    async fn send<T: FromRedisValue>(&self, cmd: &::redis::Cmd) -> T {
        let mut connection = self.connection.clone();
        cmd.query_async(&mut connection)
            .await
            .expect("the server answers")
    }
}

/// A subscriber of a lock's channel, like a Redisson thread that waits for the lock.
pub(crate) struct Subscriber {
    channel: String,
    frames: Frames<ReadHalf<Stream>>,
    // Closing this half would end the subscription.
    to: WriteHalf<Stream>,
}

impl Subscriber {
    pub(crate) async fn start(server: &RedisServer, channel: &str) -> Self {
        let stream = connect(server.addr()).await;
        let (from, mut to) = split(stream.expect("the server is up"));
        let length = channel.len();
        let subscribe = format!("*2\r\n$9\r\nSUBSCRIBE\r\n${length}\r\n{channel}\r\n");
        to.write_all(subscribe.as_bytes())
            .await
            .expect("the server is up");
        let mut subscriber = Self {
            channel: channel.to_owned(),
            frames: Frames::new(from),
            to,
        };
        let confirmed = subscriber.frame().await;
        assert_eq!(
            confirmed,
            [&b"subscribe"[..], channel.as_bytes(), &b"1"[..]]
        );
        subscriber
    }

    /// Waits for the next message and returns its bytes.
    pub(crate) async fn message(&mut self) -> Vec<u8> {
        let [kind, channel, payload] = <[Vec<u8>; 3]>::try_from(self.frame().await)
            .expect("a message has a kind, a channel and a payload");
        assert_eq!(kind, b"message");
        assert_eq!(channel, self.channel.as_bytes());
        payload
    }

    /// Returns every message sent by now that has not been read.
    pub(crate) async fn rest(&mut self, server: &RedisServer) -> Vec<Vec<u8>> {
        // Messages arrive in the order in which they were published: no earlier message can arrive after this one.
        server.cmd(&["PUBLISH", &self.channel, "the last"]);
        let mut rest = Vec::new();
        loop {
            let message = self.message().await;
            if message == b"the last" {
                return rest;
            }
            rest.push(message);
        }
    }

    /// Unsubscribes as Redisson does, and waits for the server's confirmation.
    pub(crate) async fn unsubscribe(mut self) {
        let unsubscribe = b"*1\r\n$11\r\nUNSUBSCRIBE\r\n";
        self.to
            .write_all(unsubscribe)
            .await
            .expect("the server is up");
        while self.frame().await[0] != b"unsubscribe" {}
    }

    async fn frame(&mut self) -> Vec<Vec<u8>> {
        let frame = tokio::time::timeout(PATIENCE, self.frames.next())
            .await
            .expect("a message comes");
        let frame = frame.expect("it is RESP").expect("the server is up");
        words(&frame)
    }
}

/// Returns the channel on which releases of a lock are announced.
pub(crate) fn channel(name: &str) -> String {
    in_slot("redisson_lock__channel", name)
}

/// Puts a name in braces behind a prefix. A name that contains a brace stays as it is, whatever the brace means.
pub(crate) fn in_slot(prefix: &str, name: &str) -> String {
    match name.contains('{') {
        true => format!("{prefix}:{name}"),
        false => format!("{prefix}:{{{name}}}"),
    }
}

pub(crate) const UUID: &str = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11";
/// Upper bound for anything on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
/// The default of `lockWatchdogTimeout` in ms.
const WATCHDOG: &str = "30000";

/// KEYS the lock; ARGV lease, owner. It adds one hold and sets the TTL to the lease, whatever it was before.
const LOCK: &str = "
local lock, lease, owner = KEYS[1], ARGV[1], ARGV[2]
local mine = redis.call('HEXISTS', lock, owner) == 1
if not mine and redis.call('EXISTS', lock) == 1 then
  return redis.call('PTTL', lock)
end
redis.call('HINCRBY', lock, owner, 1)
redis.call('PEXPIRE', lock, lease)
return false";

/// KEYS the lock, its channel, the latch that makes a repeated unlock harmless; ARGV message, lease of a partial unlock,
/// owner, the publish command, the latch's TTL.
const UNLOCK: &str = "
local lock, latch, owner = KEYS[1], KEYS[3], ARGV[3]
local done = redis.call('GET', latch)
if done then
  return tonumber(done)
end
if redis.call('HEXISTS', lock, owner) == 0 then
  return false
end
local freed = redis.call('HINCRBY', lock, owner, -1) <= 0
if freed then
  redis.call('DEL', lock)
  redis.call(ARGV[4], KEYS[2], ARGV[1])
else
  redis.call('PEXPIRE', lock, ARGV[2])
end
redis.call('SET', latch, freed and '1' or '0', 'PX', ARGV[5])
return freed and 1 or 0";
