//! Payload of a call on a connection: a command, several commands, or a script.
//!
//! The checks of the durability policy follow right behind the script, over the same connection: a check on another
//! connection, or before the script, proves nothing about this grant.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, ServerErrorKind, Value};

use super::ServerState;
use crate::engine::redis::durability::{DurabilityPolicy, ReplicaAcks};
use crate::engine::redis::scripts::ScriptCall;

/// The commands of one call.
pub(super) enum Payload<'a> {
    Command(&'a Cmd),
    /// Commands in one round trip, each with a reply or an error of its own.
    Commands(&'a Pipeline),
    Script(&'a ScriptCall<'a>),
}

impl Payload<'_> {
    /// Sends the payload. A script is sent again by its text if the server does not know its hash. The replies to the
    /// durability checks come behind the script's reply.
    pub(super) async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        durability: &DurabilityPolicy,
        server: &ServerState,
    ) -> RedisResult<RawReplies> {
        let call = match self {
            Self::Command(cmd) => {
                return connection
                    .send_packed_command(cmd)
                    .await
                    .map(RawReplies::single);
            }
            Self::Commands(all) => {
                let replies = connection.send_packed_commands(all, 0, all.len()).await?;
                return Ok(RawReplies::single(Value::Array(replies)));
            }
            Self::Script(call) => call,
        };
        if !call.only_reads() || !server.has_read_only_scripts() {
            return evalsha_or_eval(connection, durability, call, false).await;
        }
        let replies = evalsha_or_eval(connection, durability, call, true).await?;
        let Value::ServerError(error) = &replies.first else {
            return Ok(replies);
        };
        // Servers before 7.0 do not have EVAL_RO, and a user may be allowed EVAL alone.
        let unknown = error
            .details()
            .is_some_and(|details| details.starts_with(UNKNOWN_COMMAND));
        if !unknown && error.kind() != Some(ServerErrorKind::NoPerm) {
            return Ok(replies);
        }
        let replies = evalsha_or_eval(connection, durability, call, false).await?;
        if !matches!(&replies.first, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoPerm))
        {
            server.set_no_read_only_scripts();
        }
        Ok(replies)
    }

    /// Returns whether each item of the reply is a result of its own, in which a text is an error.
    pub(super) fn has_item_results(&self) -> bool {
        match self {
            Self::Command(_) | Self::Commands(_) => false,
            Self::Script(call) => call.has_item_results(),
        }
    }

    /// Returns whether the payload may grant something to an owner that has no hold yet.
    pub(super) fn is_fresh_acquire(&self) -> bool {
        match self {
            Self::Command(_) | Self::Commands(_) => false,
            Self::Script(call) => call.is_fresh_acquire(),
        }
    }
}

/// Beginning of the error details for a command that the server does not have.
const UNKNOWN_COMMAND: &str = "unknown command";

async fn evalsha_or_eval(
    connection: &mut MultiplexedConnection,
    durability: &DurabilityPolicy,
    call: &ScriptCall<'_>,
    read_only: bool,
) -> RedisResult<RawReplies> {
    let script = call.evalsha(read_only);
    let replies = send_with_durability(connection, durability, script, call.asking).await?;
    if let Value::ServerError(error) = &replies.first
        && error.kind() == Some(ServerErrorKind::NoScript)
    {
        let script = call.eval(read_only);
        return send_with_durability(connection, durability, script, call.asking).await;
    }
    Ok(replies)
}

/// The replies of a server to one call.
#[derive(Debug)]
pub(super) struct RawReplies {
    pub(super) first: Value,
    /// Replies to the durability checks behind the script.
    pub(super) trailing: Vec<Value>,
}

impl RawReplies {
    const fn single(first: Value) -> Self {
        let trailing = Vec::new();
        Self { first, trailing }
    }
}

/// Runs a script, followed by the durability checks. With `asking`, sends `ASKING` first: the keys are
/// being migrated to the server.
async fn send_with_durability(
    connection: &mut MultiplexedConnection,
    durability: &DurabilityPolicy,
    script: Cmd,
    asking: bool,
) -> RedisResult<RawReplies> {
    if durability.is_none() && !asking {
        let reply = connection.send_packed_command(&script).await;
        return reply.map(RawReplies::single);
    }
    let mut pipeline = Pipeline::with_capacity(4);
    if asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(script);
    if let Some(ReplicaAcks { acks, timeout }) = durability.replica_acks {
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        pipeline.cmd("WAIT").arg(acks).arg(timeout.max(1));
    }
    if durability.failover_delay.is_some() {
        pipeline.cmd("INFO").arg("replication");
    }
    let count = pipeline.len();
    let replies = connection.send_packed_commands(&pipeline, 0, count).await?;
    let mut replies = replies.into_iter().skip(usize::from(asking));
    Ok(RawReplies {
        first: replies.next().unwrap_or(Value::Nil),
        trailing: replies.collect(),
    })
}
