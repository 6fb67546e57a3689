//! The errors of the driver, and the last error of a waiting caller.

use std::sync::Arc;
use std::time::Duration;

use super::clock;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::Reply;
use crate::protocol::acquire::AcquireStep;
use crate::protocol::lease::LostReason;

/// Why a call failed.
#[derive(Clone, Debug)]
pub(crate) enum DriverError {
    /// The client is closed.
    Closed,
    /// The store refused the request, or did not reply.
    StoreError(StoreError),
    /// The client belongs to the process that this one was forked from.
    Forked,
    /// The lock was held and is no longer.
    Lost(LostReason),
    /// A reader wants to write while others read as well: it would wait for itself.
    WouldDeadlock,
    /// The deadline passed before it was known whether the lock is free. Contains the store's last error if it was that
    /// too few replicas had the lock.
    TimedOut(Option<StoreError>),
    /// A reader holds the lock as often as it may: each of its holds has a key of its own in Redis.
    TooManyReads,
    /// The lease is longer than the wait after a failover, which this contains: another client could be granted the
    /// lock by the new server while this lease still runs.
    LeaseTooLong(Duration),
    /// The server, which this names, restarted and may have forgotten the holder of the lock: it has no vote for this
    /// long afterwards.
    RecentlyRestarted(Duration, String),
}

impl DriverError {
    /// Returns the error for a reply that denies the hold, or that makes no sense.
    pub(super) fn refused(reply: &Reply) -> Self {
        match reply.refusal() {
            Some(reason) => Self::Lost(reason),
            None => Self::StoreError(unexpected_reply(reply)),
        }
    }

    /// Returns whether a release that ended with this error shows that the lock was not held, or not by this process. A
    /// missing reply does not.
    pub(super) const fn denies_hold(&self) -> bool {
        match self {
            Self::StoreError(failure) => matches!(
                failure.kind,
                StoreErrorKind::Unexpected | StoreErrorKind::Unusable | StoreErrorKind::WrongKind
            ),
            Self::Forked | Self::Lost(_) => true,
            Self::Closed
            | Self::WouldDeadlock
            | Self::TimedOut(_)
            | Self::LeaseTooLong(_)
            | Self::TooManyReads
            | Self::RecentlyRestarted(..) => false,
        }
    }

    pub(super) fn with(self, name: &Arc<str>) -> NamedDriverError {
        NamedDriverError {
            name: name.clone(),
            error: self,
        }
    }
}

/// The last error of a caller that waits.
#[derive(Debug, Default)]
pub(super) struct LastError(Option<StoreError>);

impl LastError {
    /// Notes an error, and the step that follows it.
    pub(super) fn note(&mut self, failure: StoreError, next: AcquireStep) {
        // If the deadline interrupted the last request, keep the previous error: it is more informative than a timeout.
        let cut_off = next == AcquireStep::TimedOut && failure.kind == StoreErrorKind::TimedOut;
        if !cut_off {
            self.0 = Some(failure);
        }
    }

    /// Forgets the error, because the store has replied that the lock is held.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Returns the error that ends the wait.
    pub(super) fn fatal(&mut self) -> DriverError {
        let failure = self.0.take();
        failure.map_or(DriverError::TimedOut(None), DriverError::StoreError)
    }

    /// Returns the error of a wait whose deadline has passed.
    pub(super) fn timeout_error(&mut self) -> DriverError {
        let said = |failure: &StoreError| failure.kind == StoreErrorKind::NotReplicated;
        DriverError::TimedOut(self.0.take().filter(said))
    }
}

/// An error, and the lock or pattern that it is about.
#[derive(Debug)]
pub(crate) struct NamedDriverError {
    pub(crate) name: Arc<str>,
    pub(crate) error: DriverError,
}

/// Returns an error if there is no runtime, because timers would panic.
pub(super) fn require_runtime() -> Result<(), StoreError> {
    if clock::has_runtime() {
        return Ok(());
    }
    Err(StoreError::new(
        StoreErrorKind::Unreachable,
        "locks need a running tokio runtime; `distlock::blocking` has its own",
    ))
}

pub(super) fn unexpected_reply(reply: &Reply) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unexpected,
        format!("unexpected reply {reply:?}"),
    )
}

pub(super) fn no_reply(limit: Duration) -> StoreError {
    StoreError::new(
        StoreErrorKind::TimedOut,
        format!("no reply within {limit:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Moment;

    #[test]
    fn a_timed_out_wait_reports_the_last_store_error() {
        let sleep = AcquireStep::Sleep(Moment::at(Duration::ZERO));
        let replicas = (StoreErrorKind::NotReplicated, sleep);
        let silent = (StoreErrorKind::TimedOut, sleep);
        let gone = (StoreErrorKind::Unreachable, sleep);
        let cut_off = (StoreErrorKind::TimedOut, AcquireStep::TimedOut);
        for (told, said) in [
            (vec![replicas], true),
            (vec![replicas, cut_off], true),
            (vec![replicas, silent, cut_off], false),
            (vec![replicas, gone, cut_off], false),
            (vec![silent, replicas, cut_off], true),
            (vec![cut_off], false),
            (vec![], false),
        ] {
            let mut last = LastError::default();
            for (cause, next) in &told {
                last.note(StoreError::new(*cause, "it is so"), *next);
            }
            let error = last.timeout_error();
            assert!(
                matches!(&error, DriverError::TimedOut(failure) if failure.is_some() == said),
                "{told:?}: {error:?}"
            );
        }
        let mut last = LastError::default();
        last.note(
            StoreError::new(StoreErrorKind::NotReplicated, "it is so"),
            sleep,
        );
        last.forget();
        assert!(matches!(last.timeout_error(), DriverError::TimedOut(None)));
    }
}
