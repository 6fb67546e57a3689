//! Pub/sub mode: whether waiters are notified through the whole cluster, or through the lock's own shard alone.

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{ErrorKind, PushKind, RedisResult, Value};

/// The kind of pub/sub that messages are sent by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PubSubMode {
    /// `PUBLISH`, which reaches every subscriber.
    #[default]
    Plain,
    /// `SPUBLISH`, which reaches the subscribers at the channel's own server.
    Sharded,
    /// Both, one after the other, for fleets in which some clients know only the first.
    Both,
}

impl PubSubMode {
    const fn is_plain(self) -> bool {
        matches!(self, Self::Plain | Self::Both)
    }

    pub(super) const fn is_sharded(self) -> bool {
        matches!(self, Self::Sharded | Self::Both)
    }

    /// Groups channels by command: sharded channels of several slots cannot be in one command.
    pub(super) fn group(self, names: Vec<String>) -> Vec<Vec<String>> {
        if !self.is_sharded() {
            return vec![names];
        }
        names.into_iter().map(|name| vec![name]).collect()
    }

    /// Subscribes, and resolves when the server has confirmed all channels.
    pub(super) async fn subscribe(
        self,
        connection: &mut MultiplexedConnection,
        names: &[String],
    ) -> RedisResult<()> {
        if self.is_plain() {
            connection.subscribe(names).await?;
        }
        if self.is_sharded() {
            send_each(connection, "SSUBSCRIBE", &PushKind::SSubscribe, names).await?;
        }
        Ok(())
    }

    /// Unsubscribes, and resolves when the server has confirmed all channels.
    pub(super) async fn unsubscribe(
        self,
        connection: &mut MultiplexedConnection,
        names: &[String],
    ) -> RedisResult<()> {
        if self.is_plain() {
            connection.unsubscribe(names).await?;
        }
        if self.is_sharded() {
            send_each(connection, "SUNSUBSCRIBE", &PushKind::SUnsubscribe, names).await?;
        }
        Ok(())
    }
}

async fn send_each(
    connection: &mut MultiplexedConnection,
    word: &str,
    confirmation: &PushKind,
    names: &[String],
) -> RedisResult<()> {
    for name in names {
        let mut cmd = redis::cmd(word);
        cmd.arg(name);
        let reply = connection.req_packed_command(&cmd).await?;
        // A server that gives a slot away sends SUNSUBSCRIBE unasked, and the crate takes it for the reply to the
        // pending command.
        if !confirms(&reply.extract_error()?, confirmation, name) {
            let why = "the server confirmed another channel than the requested one";
            return Err((ErrorKind::Io, why).into());
        }
    }
    Ok(())
}

fn confirms(reply: &Value, confirmation: &PushKind, name: &str) -> bool {
    let Value::Push { kind, data } = reply else {
        return false;
    };
    let channel = match data.first() {
        Some(Value::BulkString(channel)) => &**channel,
        _ => b"",
    };
    kind == confirmation && channel == name.as_bytes()
}
