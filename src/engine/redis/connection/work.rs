//! What a connection carries.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, ServerErrorKind, Value};

use crate::engine::redis::assurance::{Answers, Assurance};
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
        let answers = assurance
            .send(connection, call.by_hash(), call.asking)
            .await?;
        if let Value::ServerError(error) = &answers.first
            && error.kind() == Some(ServerErrorKind::NoScript)
        {
            return assurance
                .send(connection, call.by_text(), call.asking)
                .await;
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
