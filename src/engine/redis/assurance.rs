//! What it takes for a grant to count: so many replicas have it, and its server has been the one for long enough. Pure.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::failure;
use super::identity::Identity;
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

/// A script's answer.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) value: Value,
    pub(super) kept: Kept,
}

/// What came of a script.
#[derive(Debug)]
pub(super) enum Ran {
    /// It was not sent: for this long the server grants nothing new.
    HeldBack(Duration),
    Said(Said),
}

impl Ran {
    /// What was said, of what takes nothing.
    pub(super) fn said(self) -> Result<Said, Failure> {
        match self {
            Self::Said(said) => Ok(said),
            Self::HeldBack(left) => {
                let why = format!("nothing new is granted for another {left:?}");
                Err(Failure::new(Cause::Unready, why))
            }
        }
    }
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
            if acknowledged < i64::from(acks) && !planted!(AcksIgnored) {
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

    /// From when on a server grants something new that has been what it is for this long, as was heard at this time: after it
    /// was so.
    pub(super) fn grants_from(&self, heard: Instant, age: Duration) -> Option<Instant> {
        Some(heard + self.delay?.saturating_sub(age))
    }
}

fn not_replicated(why: String) -> Failure {
    Failure::new(Cause::NotReplicated, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACKS: Assurance = Assurance {
        replicas: Some(Replicas {
            acks: 2,
            timeout: Duration::from_secs(1),
        }),
        delay: None,
    };
    const DELAY: Assurance = Assurance {
        replicas: None,
        delay: Some(Duration::from_secs(30)),
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

    /// Why what was granted does not count, if it does not.
    fn doubt(assurance: &Assurance, behind: Vec<Value>) -> Option<Cause> {
        let server = Identity::told("run_id:a\r\n", &replication("master", "1", "0"));
        let kept = assurance.kept(behind, server.as_ref());
        let busy = Reply::Busy { ttl: None };
        assert_eq!(kept.counted(Ok(busy.clone())).ok(), Some(busy), "always");
        let granted = kept.counted(Ok(Reply::Granted { token: None }));
        let renewed = kept.counted(Ok(Reply::Renewed));
        assert_eq!(granted.is_ok(), renewed.is_ok());
        granted.err().map(|failure| failure.cause)
    }

    #[test]
    fn a_grant_counts_when_enough_replicas_have_it() {
        for (said, doubted) in [
            (vec![Value::Int(2)], None),
            (vec![Value::Int(3)], None),
            (vec![Value::Int(1)], Some(Cause::NotReplicated)),
            (
                vec![error("NOPERM no WAIT for you")],
                Some(Cause::NotReplicated),
            ),
            (vec![text("2")], Some(Cause::NotReplicated)),
            (vec![], Some(Cause::NotReplicated)),
        ] {
            assert_eq!(doubt(&ACKS, said.clone()), doubted, "{said:?}");
        }
        assert_eq!(doubt(&Assurance::default(), vec![]), None);
    }

    #[test]
    fn a_grant_counts_when_its_server_was_the_same_all_the_while() {
        for (said, doubted) in [
            (text(&replication("master", "1", "0")), None),
            // A first replica has come.
            (text(&replication("master", "2", "0")), None),
            (
                text(&replication("slave", "1", "0")),
                Some(Cause::Interrupted),
            ),
            (
                text(&replication("master", "2", "1")),
                Some(Cause::Interrupted),
            ),
            (error("NOPERM no INFO for you"), Some(Cause::Interrupted)),
            (Value::Nil, Some(Cause::Interrupted)),
        ] {
            assert_eq!(doubt(&DELAY, vec![said.clone()]), doubted, "{said:?}");
            // Behind the replicas' answer, where there is one.
            let both = Assurance {
                delay: DELAY.delay,
                ..ACKS
            };
            let answers = vec![Value::Int(2), said.clone()];
            assert_eq!(doubt(&both, answers), doubted, "{said:?}");
            let too_few = vec![Value::Int(0), said];
            assert_eq!(doubt(&both, too_few), Some(Cause::NotReplicated));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn a_young_server_grants_nothing_new_yet() {
        let heard = Instant::now();
        let after = |age| {
            let from = DELAY.grants_from(heard, Duration::from_secs(age));
            from.map(|from| from.saturating_duration_since(heard).as_secs())
        };
        assert_eq!(after(0), Some(30));
        assert_eq!(after(29), Some(1));
        assert_eq!(after(31), Some(0));
        assert_eq!(ACKS.grants_from(heard, Duration::ZERO), None);
    }
}
