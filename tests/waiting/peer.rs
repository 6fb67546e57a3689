//! Redisson's side of a plain lock, restated: one thread of a JVM that waits for it and gives it back.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind};
use tokio::sync::mpsc;

/// One thread of a Redisson client.
pub(crate) struct Peer {
    connection: MultiplexedConnection,
    messages: mpsc::UnboundedReceiver<PushInfo>,
    name: String,
    channel: String,
}

impl Peer {
    pub(crate) async fn connect(url: &str, name: &str) -> Self {
        let (pushes, messages) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_push_sender(pushes);
        let connection = Client::open(format!("{url}?protocol=resp3"))
            .expect("a server's address")
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .expect("the server is up");
        Self {
            connection,
            messages,
            name: name.to_owned(),
            channel: super::channel(name),
        }
    }

    /// `tryLock(wait, lease)`: try, subscribe, try again, and then after every message or lease.
    pub(crate) async fn try_lock(&mut self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        if self.attempt().await.is_none() {
            return true;
        }
        self.connection
            .subscribe(&self.channel)
            .await
            .expect("nobody forbids it");
        let mut got = false;
        while Instant::now() < deadline {
            let Some(ttl) = self.attempt().await else {
                got = true;
                break;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let _ = tokio::time::timeout(left.min(ttl), self.message()).await;
        }
        self.connection
            .unsubscribe(&self.channel)
            .await
            .expect("nobody forbids it");
        got
    }

    /// Listens for releases, as any waiter does, without ever asking for the lock.
    pub(crate) async fn listen(&mut self) {
        let listening = self.connection.subscribe(&self.channel).await;
        listening.expect("nobody forbids it");
    }

    /// `unlock()`.
    pub(crate) async fn unlock(&mut self) {
        let unlock = redis::Script::new(UNLOCK);
        let mut unlock = unlock.key(&self.name);
        let unlock = unlock.key(&self.channel).arg(OWNER).arg("0");
        let released: Option<u32> = unlock.invoke_async(&mut self.connection).await.unwrap();
        assert_eq!(
            released,
            Some(1),
            "somebody broke into a lock that Redisson held"
        );
    }

    /// `None` if it got the lock, else how long the holder still has.
    async fn attempt(&mut self) -> Option<Duration> {
        let acquire = redis::Script::new(ACQUIRE);
        let mut acquire = acquire.key(&self.name);
        let acquire = acquire.arg(30_000).arg(OWNER);
        let ttl: Option<u64> = acquire.invoke_async(&mut self.connection).await.unwrap();
        ttl.map(Duration::from_millis)
    }

    async fn message(&mut self) {
        while let Some(push) = self.messages.recv().await {
            if push.kind == PushKind::Message {
                return;
            }
        }
    }
}

const OWNER: &str = "0d9c1c2e-0000-4000-8000-00000000beef:47";

const ACQUIRE: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return nil
end
return redis.call('PTTL', KEYS[1])";

const UNLOCK: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], ARGV[2])
return 1";
