//! The calls that a connection sends: a script, a command, or several commands.

use redis::{Cmd, Pipeline, Value};

use super::Connection;
use super::payload::Payload;
use crate::engine::StoreError;
use crate::engine::redis::durability::ScriptOutcome;
use crate::engine::redis::scripts::ScriptCall;

impl Connection {
    /// Runs a script by its hash or, if the server does not know the hash, by its text. A script that acquires
    /// something is not sent while the server grants nothing new.
    pub(crate) async fn run(&self, call: &ScriptCall<'_>) -> Result<ScriptOutcome, StoreError> {
        self.execute(&Payload::Script(call)).await
    }

    /// Sends one command.
    pub(crate) async fn send(&self, cmd: &Cmd) -> Result<Value, StoreError> {
        let ran = self.execute(&Payload::Command(cmd)).await?;
        Ok(ran.executed()?.value)
    }

    /// Sends several commands in one round trip; each has a reply or an error of its own.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, StoreError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let ran = self.execute(&Payload::Commands(commands)).await?;
        match ran.executed()?.value {
            Value::Array(replies) => Ok(replies),
            other => Ok(vec![other]),
        }
    }
}
