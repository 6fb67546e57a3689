//! What may be sent: a script, a command, or several commands.

use redis::{Cmd, Pipeline, Value};

use super::Connection;
use super::work::Work;
use crate::engine::Failure;
use crate::engine::redis::assurance::Ran;
use crate::engine::redis::scripts::Call;

impl Connection {
    /// Runs a script, by its hash or, where the server does not know it, by its text; unless it takes something, and the
    /// server grants nothing new.
    pub(crate) async fn run(&self, call: &Call<'_>) -> Result<Ran, Failure> {
        self.carry_out(&Work::Script(call)).await
    }

    /// Sends one command.
    pub(crate) async fn send(&self, cmd: &Cmd) -> Result<Value, Failure> {
        let ran = self.carry_out(&Work::Command(cmd)).await?;
        Ok(ran.said()?.value)
    }

    /// Sends several commands in one round trip; each has an answer of its own, or an error.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let ran = self.carry_out(&Work::Commands(commands)).await?;
        match ran.said()?.value {
            Value::Array(answers) => Ok(answers),
            other => Ok(vec![other]),
        }
    }
}
