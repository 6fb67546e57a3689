//! Durability policy: a grant counts if N replicas have it, and if its server has been the master for long enough.
//! Pure.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::failure;
use super::incarnation::Incarnation;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::Reply;

/// Conditions under which a grant counts.
#[derive(Clone, Debug, Default)]
pub struct DurabilityPolicy {
    /// Number of replicas that have to acknowledge a grant.
    pub replica_acks: Option<ReplicaAcks>,
    /// A server that has been promoted or started less than this ago grants nothing new.
    pub failover_delay: Option<Duration>,
}

/// Number of replicas, and the time that they have.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaAcks {
    /// Number of replicas.
    pub acks: u32,
    /// Maximum time for their acknowledgement.
    pub timeout: Duration,
}

/// The reply of a script that was executed, and whether it meets the durability policy.
#[derive(Debug)]
pub(super) struct ScriptReply {
    pub(super) value: Value,
    pub(super) durable: DurabilityOutcome,
}

/// The outcome of a script call: a reply, unless the script was not sent.
#[derive(Debug)]
pub(super) enum ScriptOutcome {
    /// The script was not sent: for this long the server grants nothing new.
    Delayed(Duration),
    Executed(ScriptReply),
}

impl ScriptOutcome {
    /// Returns the reply of a script that acquires nothing new, so that it is always executed.
    pub(super) fn executed(self) -> Result<ScriptReply, StoreError> {
        match self {
            Self::Executed(said) => Ok(said),
            Self::Delayed(left) => {
                let why = format!("the server grants no new locks for another {left:?}");
                Err(StoreError::new(StoreErrorKind::NotReady, why))
            }
        }
    }
}

/// Whether a grant by a script can be relied on.
#[derive(Debug)]
pub(super) struct DurabilityOutcome(Result<(), StoreError>);

impl DurabilityOutcome {
    /// Returns the reply of a script, unless it is a grant that may be lost.
    pub(super) fn apply_to(&self, reply: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
        match reply {
            Ok(Reply::Granted { .. } | Reply::Renewed) => self.0.clone().and(reply),
            reply => reply,
        }
    }

    /// Returns whether a grant is not durable because the server has been demoted or promoted.
    pub(super) fn is_from_another_master(&self) -> bool {
        let failure = self.0.as_ref().err();
        failure.is_some_and(|failure| failure.kind == StoreErrorKind::Interrupted)
    }
}

impl DurabilityPolicy {
    /// Returns whether nothing is required beside the reply.
    pub const fn is_none(&self) -> bool {
        self.replica_acks.is_none() && self.failover_delay.is_none()
    }

    /// Checks the replies behind a script, from the server that should have this incarnation.
    pub(super) fn check(
        &self,
        trailing: impl IntoIterator<Item = Value>,
        server: Option<&Incarnation>,
    ) -> DurabilityOutcome {
        DurabilityOutcome(self.evaluate(trailing, server))
    }

    fn evaluate(
        &self,
        trailing: impl IntoIterator<Item = Value>,
        server: Option<&Incarnation>,
    ) -> Result<(), StoreError> {
        let mut trailing = trailing.into_iter().map(Value::extract_error);
        if let Some(ReplicaAcks { acks, timeout }) = self.replica_acks {
            let acknowledged = match trailing.next() {
                Some(Ok(Value::Int(acknowledged))) => acknowledged,
                Some(Err(error)) => {
                    let why = failure::from_call_error(&error).detail;
                    return Err(not_replicated(format!(
                        "the server cannot wait for replicas: {why}"
                    )));
                }
                Some(Ok(_)) | None => 0,
            };
            if acknowledged < i64::from(acks) && !planted!(AcksIgnored) {
                return Err(not_replicated(format!(
                    "{acknowledged} of {acks} replicas acknowledged the write within {timeout:?}"
                )));
            }
        }
        if self.failover_delay.is_some() {
            let replication = trailing.next().and_then(Result::ok);
            let replication = replication
                .and_then(|replication| redis::from_redis_value::<String>(replication).ok());
            let same = replication
                .as_deref()
                .zip(server)
                .is_some_and(|(replication, server)| server.still_matches(replication));
            if !same {
                let why = "the server was demoted or promoted in the meantime";
                return Err(StoreError::new(StoreErrorKind::Interrupted, why));
            }
        }
        Ok(())
    }

    /// Returns the time from which a server grants new locks. Its `age` was true before the reply arrived, at
    /// `replied_at`.
    pub(super) fn grants_allowed_at(&self, replied_at: Instant, age: Duration) -> Option<Instant> {
        Some(replied_at + self.failover_delay?.saturating_sub(age))
    }
}

fn not_replicated(why: String) -> StoreError {
    StoreError::new(StoreErrorKind::NotReplicated, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACKS: DurabilityPolicy = DurabilityPolicy {
        replica_acks: Some(ReplicaAcks {
            acks: 2,
            timeout: Duration::from_secs(1),
        }),
        failover_delay: None,
    };
    const DELAY: DurabilityPolicy = DurabilityPolicy {
        replica_acks: None,
        failover_delay: Some(Duration::from_secs(30)),
    };

    fn replication(role: &str, data: &str, before: &str) -> String {
        format!("role:{role}\r\nmaster_replid:{data}\r\nmaster_replid2:{before}\r\n")
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn error(words: &str) -> Value {
        let said = redis::parse_redis_value(format!("-{words}\r\n").as_bytes());
        said.expect("it is an answer")
    }

    /// Returns why a grant does not count, if it does not.
    fn refusal(durability: &DurabilityPolicy, trailing: Vec<Value>) -> Option<StoreErrorKind> {
        let server = Incarnation::parse("run_id:a\r\n", &replication("master", "1", "0"));
        let durable = durability.check(trailing, server.as_ref());
        let busy = Reply::Busy { ttl: None };
        assert_eq!(
            durable.apply_to(Ok(busy.clone())).ok(),
            Some(busy),
            "always"
        );
        let granted = durable.apply_to(Ok(Reply::Granted { token: None }));
        let renewed = durable.apply_to(Ok(Reply::Renewed));
        assert_eq!(granted.is_ok(), renewed.is_ok());
        granted.err().map(|failure| failure.kind)
    }

    #[test]
    fn grant_counts_if_enough_replicas_acknowledged() {
        for (said, refused) in [
            (vec![Value::Int(2)], None),
            (vec![Value::Int(3)], None),
            (vec![Value::Int(1)], Some(StoreErrorKind::NotReplicated)),
            (
                vec![error("NOPERM no WAIT for you")],
                Some(StoreErrorKind::NotReplicated),
            ),
            (vec![text("2")], Some(StoreErrorKind::NotReplicated)),
            (vec![], Some(StoreErrorKind::NotReplicated)),
        ] {
            assert_eq!(refusal(&ACKS, said.clone()), refused, "{said:?}");
        }
        assert_eq!(refusal(&DurabilityPolicy::default(), vec![]), None);
    }

    #[test]
    fn grant_counts_if_the_master_did_not_change() {
        for (said, refused) in [
            (text(&replication("master", "1", "0")), None),
            // A first replica has attached.
            (text(&replication("master", "2", "0")), None),
            (
                text(&replication("slave", "1", "0")),
                Some(StoreErrorKind::Interrupted),
            ),
            (
                text(&replication("master", "2", "1")),
                Some(StoreErrorKind::Interrupted),
            ),
            (
                error("NOPERM no INFO for you"),
                Some(StoreErrorKind::Interrupted),
            ),
            (Value::Nil, Some(StoreErrorKind::Interrupted)),
        ] {
            assert_eq!(refusal(&DELAY, vec![said.clone()]), refused, "{said:?}");
            // The reply to INFO comes behind the replicas' reply, where there is one.
            let both = DurabilityPolicy {
                failover_delay: DELAY.failover_delay,
                ..ACKS
            };
            let answers = vec![Value::Int(2), said.clone()];
            assert_eq!(refusal(&both, answers), refused, "{said:?}");
            let too_few = vec![Value::Int(0), said];
            assert_eq!(refusal(&both, too_few), Some(StoreErrorKind::NotReplicated));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn new_master_grants_nothing_before_the_failover_delay() {
        let replied_at = Instant::now();
        let after = |age| {
            let from = DELAY.grants_allowed_at(replied_at, Duration::from_secs(age));
            from.map(|from| from.saturating_duration_since(replied_at).as_secs())
        };
        assert_eq!(after(0), Some(30));
        assert_eq!(after(29), Some(1));
        assert_eq!(after(31), Some(0));
        assert_eq!(ACKS.grants_allowed_at(replied_at, Duration::ZERO), None);
    }
}
