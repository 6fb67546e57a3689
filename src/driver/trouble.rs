//! Why a call brought nothing.

use std::sync::Arc;
use std::time::Duration;

use super::clock;
use crate::engine::{Cause, Failure};
use crate::protocol::Reply;
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
    /// The deadline passed before anybody could say whether the lock is free.
    TimedOut,
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
    pub(super) fn note(&mut self, failure: Failure) {
        // That no answer came in the end says less than the one before.
        if failure.cause != Cause::TimedOut || !self.is_an_answer() {
            self.0 = Some(failure);
        }
    }

    /// Somebody has said who holds it.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// It is why the wait ends.
    pub(super) fn fatal(&mut self) -> Trouble {
        self.0.take().map_or(Trouble::TimedOut, Trouble::Failure)
    }

    /// The wait is over.
    pub(super) fn out_of_time(&mut self) -> Trouble {
        if self.is_an_answer() {
            return self.fatal();
        }
        Trouble::TimedOut
    }

    /// Whether the store has answered, and it does not count.
    fn is_an_answer(&self) -> bool {
        let failure = self.0.as_ref();
        failure.is_some_and(|failure| failure.cause == Cause::NotReplicated)
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
