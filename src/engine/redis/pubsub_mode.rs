//! How those who wait for a lock are told: over all of a cluster, or in the lock's part of it alone.

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{ErrorKind, PushKind, RedisResult, Value};

/// What messages go by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PubSubMode {
    /// `PUBLISH`, which reaches everybody.
    #[default]
    Plain,
    /// `SPUBLISH`, which reaches those who listen at the channel's own server.
    Sharded,
    /// One after the other, for fleets some of which know only the first.
    Both,
}

impl PubSubMode {
    const fn is_plain(self) -> bool {
        matches!(self, Self::Plain | Self::Both)
    }

    pub(super) const fn is_sharded(self) -> bool {
        matches!(self, Self::Sharded | Self::Both)
    }

    /// Those that are asked for in one command: channels of several slots cannot be.
    pub(super) fn group(self, names: Vec<String>) -> Vec<Vec<String>> {
        if !self.is_sharded() {
            return vec![names];
        }
        names.into_iter().map(|name| vec![name]).collect()
    }

    /// Resolves when the server has confirmed all of them.
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

    /// Resolves when the server has let go of all of them.
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
        let answer = connection.req_packed_command(&cmd).await?;
        // A server that gives a slot away says so unasked, and the crate takes that for the answer to whatever was asked.
        if !confirms(&answer.extract_error()?, confirmation, name) {
            let why = "another channel was confirmed than was asked for";
            return Err((ErrorKind::Io, why).into());
        }
    }
    Ok(())
}

fn confirms(answer: &Value, confirmation: &PushKind, name: &str) -> bool {
    let Value::Push { kind, data } = answer else {
        return false;
    };
    let channel = match data.first() {
        Some(Value::BulkString(channel)) => &**channel,
        _ => b"",
    };
    kind == confirmation && channel == name.as_bytes()
}
