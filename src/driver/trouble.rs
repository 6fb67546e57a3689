//! Why a call brought nothing.

use std::sync::Arc;
use std::time::Duration;

use super::clock;
use crate::engine::{Cause, Failure};
use crate::protocol::Reply;
use crate::protocol::acquire::Step;
use crate::protocol::lease::LostReason;

/// Why a call brought no lock.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The client is closed.
    Closed,
    /// The store said no, or nothing.
    Failure(Failure),
    /// The client belongs to the process this one was forked from.
    Forked,
    /// The lock was held and is not any more.
    Lost(LostReason),
    /// Who wants to write reads, and so do others: it would wait for itself.
    WouldDeadlock,
    /// The deadline passed before anybody could say whether the lock is free. What the store said last, if it did: too few
    /// replicas had it.
    TimedOut(Option<Failure>),
    /// A reader holds the lock as often as it may: each of its holds has a key of its own in Redis.
    TooManyReads,
    /// After this long others may have it, whatever was promised, once the server is another.
    TooLong(Duration),
    /// The server restarted, and may have forgotten whose the lock is: it has no vote for this long after.
    TooYoung(Duration, String),
}

impl Trouble {
    /// The store has answered that the lock is not ours, or something that makes no sense.
    pub(super) fn refused(reply: &Reply) -> Self {
        match reply.refusal() {
            Some(reason) => Self::Lost(reason),
            None => Self::Failure(unexpected(reply)),
        }
    }

    /// Whether a release that ended with this shows that the lock was not held, or not by this process. A missing reply does not.
    pub(super) const fn denies_hold(&self) -> bool {
        match self {
            Self::Failure(failure) => matches!(
                failure.cause,
                Cause::Unexpected | Cause::Unusable | Cause::WrongKind
            ),
            Self::Forked | Self::Lost(_) => true,
            Self::Closed
            | Self::WouldDeadlock
            | Self::TimedOut(_)
            | Self::TooLong(_)
            | Self::TooManyReads
            | Self::TooYoung(..) => false,
        }
    }

    pub(super) fn with(self, name: &Arc<str>) -> TroubleWith {
        TroubleWith {
            name: name.clone(),
            trouble: self,
        }
    }
}

/// What went wrong last, while somebody waits.
#[derive(Debug, Default)]
pub(super) struct LastFailure(Option<Failure>);

impl LastFailure {
    /// Notes it, and what is done next.
    pub(super) fn note(&mut self, failure: Failure, next: Step) {
        // That the end of the wait cut off the last answer says less than the one before.
        let cut_off = next == Step::TimedOut && failure.cause == Cause::TimedOut;
        if !cut_off {
            self.0 = Some(failure);
        }
    }

    /// Somebody holds it.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// It is why the wait ends.
    pub(super) fn fatal(&mut self) -> Trouble {
        let failure = self.0.take();
        failure.map_or(Trouble::TimedOut(None), Trouble::Failure)
    }

    /// The wait is over.
    pub(super) fn out_of_time(&mut self) -> Trouble {
        let said = |failure: &Failure| failure.cause == Cause::NotReplicated;
        Trouble::TimedOut(self.0.take().filter(said))
    }
}

/// Trouble, and the lock or pattern that it is about.
#[derive(Debug)]
pub(crate) struct TroubleWith {
    pub(crate) name: Arc<str>,
    pub(crate) trouble: Trouble,
}

/// Timers panic without a runtime; an error is kinder.
pub(super) fn needs_a_runtime() -> Result<(), Failure> {
    if clock::in_a_runtime() {
        return Ok(());
    }
    Err(Failure::new(
        Cause::Unreachable,
        "locks need a running tokio runtime; `distlock::blocking` brings its own",
    ))
}

pub(super) fn unexpected(reply: &Reply) -> Failure {
    Failure::new(Cause::Unexpected, format!("unexpected reply {reply:?}"))
}

pub(super) fn no_answer(limit: Duration) -> Failure {
    Failure::new(Cause::TimedOut, format!("no answer within {limit:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Moment;

    #[test]
    fn who_waited_in_vain_is_told_what_the_store_said_last() {
        let sleep = Step::Sleep(Moment::at(Duration::ZERO));
        let replicas = (Cause::NotReplicated, sleep);
        let silent = (Cause::TimedOut, sleep);
        let gone = (Cause::Unreachable, sleep);
        let cut_off = (Cause::TimedOut, Step::TimedOut);
        for (told, said) in [
            (vec![replicas], true),
            (vec![replicas, cut_off], true),
            (vec![replicas, silent, cut_off], false),
            (vec![replicas, gone, cut_off], false),
            (vec![silent, replicas, cut_off], true),
            (vec![cut_off], false),
            (vec![], false),
        ] {
            let mut last = LastFailure::default();
            for (cause, next) in &told {
                last.note(Failure::new(*cause, "it is so"), *next);
            }
            let trouble = last.out_of_time();
            assert!(
                matches!(&trouble, Trouble::TimedOut(failure) if failure.is_some() == said),
                "{told:?}: {trouble:?}"
            );
        }
        let mut last = LastFailure::default();
        last.note(Failure::new(Cause::NotReplicated, "it is so"), sleep);
        last.forget();
        assert!(matches!(last.out_of_time(), Trouble::TimedOut(None)));
    }
}
