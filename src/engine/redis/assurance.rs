//! What it takes for a grant to count: so many replicas have it, and its server has been the one for long enough.
//!
//! Both are heard right behind the script, over the same connection: what is asked elsewhere, or before, says nothing about
//! this grant.

#![expect(
    clippy::disallowed_methods,
    reason = "how long a server has been the one is told by the clock"
)]

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};

use super::failure;
use super::identity::{Identity, Introduction};
use super::record::Record;
use crate::engine::{Cause, Failure};
use crate::protocol::Reply;

/// What it takes.
#[derive(Clone, Debug, Default)]
pub struct Assurance {
    /// So many replicas have to acknowledge it.
    pub replicas: Option<Replicas>,
    /// A server that has been promoted or started less than this ago grants nothing new.
    pub delay: Option<Duration>,
}

/// How many replicas, and how long they have.
#[derive(Clone, Copy, Debug)]
pub struct Replicas {
    /// How many.
    pub acks: u32,
    /// How long it may take.
    pub timeout: Duration,
}

/// What a server has answered.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) first: Value,
    /// What was heard behind it.
    pub(super) behind: Vec<Value>,
}

impl Answers {
    pub(super) const fn alone(first: Value) -> Self {
        let behind = Vec::new();
        Self { first, behind }
    }
}

/// A script's answer.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) value: Value,
    pub(super) kept: Kept,
}

/// Whether what a script has granted can be relied on.
#[derive(Debug)]
pub(super) struct Kept(Result<(), Failure>);

impl Kept {
    /// What a script has answered, unless it promises what may not be kept.
    pub(super) fn counted(&self, reply: Result<Reply, Failure>) -> Result<Reply, Failure> {
        match reply {
            Ok(Reply::Granted { .. } | Reply::Renewed) => self.0.clone().and(reply),
            reply => reply,
        }
    }

    /// Whether that is because the server is not what it was.
    pub(super) fn is_anothers(&self) -> bool {
        let failure = self.0.as_ref().err();
        failure.is_some_and(|failure| failure.cause == Cause::Interrupted)
    }
}

impl Assurance {
    /// Whether nothing is asked for beside the answer.
    pub const fn is_none(&self) -> bool {
        self.replicas.is_none() && self.delay.is_none()
    }

    /// Runs a script; what else was heard comes behind its answer. `asking` if its keys are on their way there.
    pub(super) async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        script: Cmd,
        asking: bool,
    ) -> RedisResult<Answers> {
        if self.is_none() && !asking {
            let answer = connection.send_packed_command(&script).await;
            return answer.map(Answers::alone);
        }
        let mut pipeline = Pipeline::with_capacity(4);
        if asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(script);
        if let Some(Replicas { acks, timeout }) = self.replicas {
            let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            pipeline.cmd("WAIT").arg(acks).arg(timeout.max(1));
        }
        if self.delay.is_some() {
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

    /// Judges what was heard behind a script, from the server that this one is said to be.
    pub(super) fn kept(
        &self,
        behind: impl IntoIterator<Item = Value>,
        server: Option<&Identity>,
    ) -> Kept {
        Kept(self.judged(behind, server))
    }

    fn judged(
        &self,
        behind: impl IntoIterator<Item = Value>,
        server: Option<&Identity>,
    ) -> Result<(), Failure> {
        let mut behind = behind.into_iter().map(Value::extract_error);
        if let Some(Replicas { acks, timeout }) = self.replicas {
            let acknowledged = match behind.next() {
                Some(Ok(Value::Int(acknowledged))) => acknowledged,
                Some(Err(error)) => {
                    let why = failure::of_calling(&error).detail;
                    return Err(not_replicated(format!(
                        "replicas cannot be waited for: {why}"
                    )));
                }
                Some(Ok(_)) | None => 0,
            };
            if acknowledged < i64::from(acks) {
                return Err(not_replicated(format!(
                    "{acknowledged} of {acks} replicas have acknowledged it within {timeout:?}"
                )));
            }
        }
        if self.delay.is_some() {
            let told = behind.next().and_then(Result::ok);
            let told = told.and_then(|told| redis::from_redis_value::<String>(told).ok());
            let same = told
                .as_deref()
                .zip(server)
                .is_some_and(|(told, server)| server.is_still(told));
            if !same {
                let why = "the server has been demoted or promoted meanwhile";
                return Err(Failure::new(Cause::Interrupted, why));
            }
        }
        Ok(())
    }

    /// From when on a server grants something new, if there is a delay.
    pub(super) async fn grants_from(
        &self,
        connection: &mut MultiplexedConnection,
        told: &Introduction,
        record: &Record,
    ) -> Result<Option<Instant>, Failure> {
        let Some(delay) = self.delay else {
            return Ok(None);
        };
        let asked = Instant::now();
        let unknown = || {
            let why =
                "failover_delay needs to know which server this is, and it does not say (INFO)";
            Failure::new(Cause::Unusable, why)
        };
        let identity = told.identity.as_ref().ok_or_else(unknown)?;
        let age = if identity.is_promoted() {
            record.first_seen(connection, identity, delay).await?
        } else {
            told.up.ok_or_else(unknown)?
        };
        Ok(Some(asked + delay.saturating_sub(age)))
    }
}

fn not_replicated(why: String) -> Failure {
    Failure::new(Cause::NotReplicated, why)
}
