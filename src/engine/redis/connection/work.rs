//! What a connection carries.
//!
//! What it takes for a grant to count is heard right behind the script, over the same connection: what is asked elsewhere, or
//! before, says nothing about this grant.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, ServerErrorKind, Value};

use super::Server;
use crate::engine::redis::assurance::{Assurance, Replicas};
use crate::engine::redis::scripts::Call;

/// What is to be sent.
pub(super) enum Work<'a> {
    Command(&'a Cmd),
    /// Commands in one round trip, each with an answer or an error of its own.
    Commands(&'a Pipeline),
    Script(&'a Call<'a>),
}

impl Work<'_> {
    /// Sends it; a script again by its text if the server does not know it. What is heard behind a script comes behind its
    /// answer.
    pub(super) async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        assurance: &Assurance,
        server: &Server,
    ) -> RedisResult<Answers> {
        let call = match self {
            Self::Command(cmd) => {
                return connection
                    .send_packed_command(cmd)
                    .await
                    .map(Answers::alone);
            }
            Self::Commands(all) => {
                let answers = connection.send_packed_commands(all, 0, all.len()).await?;
                return Ok(Answers::alone(Value::Array(answers)));
            }
            Self::Script(call) => call,
        };
        if !call.only_reads() || !server.has_read_only_scripts() {
            return by_hash_or_text(connection, assurance, call, false).await;
        }
        let answers = by_hash_or_text(connection, assurance, call, true).await?;
        let Value::ServerError(error) = &answers.first else {
            return Ok(answers);
        };
        // Servers before 7.0 do not have EVAL_RO, and a user may be allowed EVAL alone.
        let unknown = error
            .details()
            .is_some_and(|details| details.starts_with(UNKNOWN));
        if !unknown && error.kind() != Some(ServerErrorKind::NoPerm) {
            return Ok(answers);
        }
        let answers = by_hash_or_text(connection, assurance, call, false).await?;
        if !matches!(&answers.first, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoPerm))
        {
            server.has_no_read_only_scripts();
        }
        Ok(answers)
    }

    /// Whether each item of the answer is a result of its own, and a text in it an error.
    pub(super) fn has_item_results(&self) -> bool {
        match self {
            Self::Command(_) | Self::Commands(_) => false,
            Self::Script(call) => call.has_item_results(),
        }
    }

    /// Whether it may grant something to somebody who has nothing of it.
    pub(super) fn takes(&self) -> bool {
        match self {
            Self::Command(_) | Self::Commands(_) => false,
            Self::Script(call) => call.takes(),
        }
    }
}

/// How servers begin the details of the error for a command that they do not have.
const UNKNOWN: &str = "unknown command";

async fn by_hash_or_text(
    connection: &mut MultiplexedConnection,
    assurance: &Assurance,
    call: &Call<'_>,
    read_only: bool,
) -> RedisResult<Answers> {
    let script = call.by_hash(read_only);
    let answers = assured(connection, assurance, script, call.asking).await?;
    if let Value::ServerError(error) = &answers.first
        && error.kind() == Some(ServerErrorKind::NoScript)
    {
        let script = call.by_text(read_only);
        return assured(connection, assurance, script, call.asking).await;
    }
    Ok(answers)
}

/// What a server has answered.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) first: Value,
    /// What was heard behind it.
    pub(super) behind: Vec<Value>,
}

impl Answers {
    const fn alone(first: Value) -> Self {
        let behind = Vec::new();
        Self { first, behind }
    }
}

/// Runs a script, and asks for what else it takes. `asking` if its keys are on their way there.
async fn assured(
    connection: &mut MultiplexedConnection,
    assurance: &Assurance,
    script: Cmd,
    asking: bool,
) -> RedisResult<Answers> {
    if assurance.is_none() && !asking {
        let answer = connection.send_packed_command(&script).await;
        return answer.map(Answers::alone);
    }
    let mut pipeline = Pipeline::with_capacity(4);
    if asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(script);
    if let Some(Replicas { acks, timeout }) = assurance.replicas {
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        pipeline.cmd("WAIT").arg(acks).arg(timeout.max(1));
    }
    if assurance.delay.is_some() {
        pipeline.cmd("INFO").arg("replication");
    }
    let count = pipeline.len();
    let answers = connection.send_packed_commands(&pipeline, 0, count).await?;
    let mut answers = answers.into_iter().skip(usize::from(asking));
    Ok(Answers {
        first: answers.next().unwrap_or(Value::Nil),
        behind: answers.collect(),
    })
}
