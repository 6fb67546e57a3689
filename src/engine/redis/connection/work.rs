//! What a connection carries.
//!
//! What it takes for a grant to count is heard right behind the script, over the same connection: what is asked elsewhere, or
//! before, says nothing about this grant.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, ServerErrorKind, Value};

use crate::engine::redis::assurance::{Assurance, Replicas};
use crate::engine::redis::scripts::Call;

/// What is to be sent.
pub(super) enum Work<'a> {
    Command(&'a Cmd),
    Script(&'a Call<'a>),
}

impl Work<'_> {
    /// Sends it; a script again by its text if the server does not know it. What is heard behind a script comes behind its
    /// answer.
    pub(super) async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        assurance: &Assurance,
    ) -> RedisResult<Answers> {
        let call = match self {
            Self::Command(cmd) => {
                return connection
                    .send_packed_command(cmd)
                    .await
                    .map(Answers::alone);
            }
            Self::Script(call) => call,
        };
        let answers = assured(connection, assurance, call.by_hash(), call.asking).await?;
        if let Value::ServerError(error) = &answers.first
            && error.kind() == Some(ServerErrorKind::NoScript)
        {
            return assured(connection, assurance, call.by_text(), call.asking).await;
        }
        Ok(answers)
    }

    /// Whether it may grant something to somebody who has nothing of it.
    pub(super) fn takes(&self) -> bool {
        match self {
            Self::Command(_) => false,
            Self::Script(call) => call.takes(),
        }
    }
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
