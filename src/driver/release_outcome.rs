//! The outcome of a hold's release: the guards that the release overtook report the same.
//!
//! | state          | meaning                                               | left when                               |
//! |----------------|-------------------------------------------------------|-----------------------------------------|
//! | open           | not released yet, or the request is in flight         | the store replies, or cleanup gives up  |
//! | in doubt       | a request without a reply may have been carried out   | the same                                |
//! | released       | the lock was held until the release                   | never                                   |
//! | failed         | the hold was gone before, or the store does not reply | never                                   |
//! | left to expire | no release was sent: the hold is left to its lease    | never                                   |

use super::cleanup_job::CleanupJob;
use super::hold::Hold;
use super::{DriverError, no_reply};
use crate::engine::StoreError;
use crate::protocol::Reply;

/// The outcome of a hold's release, as far as it is known.
#[derive(Debug, Default)]
pub(super) enum ReleaseOutcome {
    #[default]
    Open,
    InDoubt,
    Released,
    Failed(Box<DriverError>),
    LeftToExpire,
}

impl ReleaseOutcome {
    pub(super) const fn is_left_to_expire(&self) -> bool {
        matches!(self, Self::LeftToExpire)
    }

    const fn is_final(&self) -> bool {
        !matches!(self, Self::Open | Self::InDoubt)
    }
}

impl Hold {
    /// Notes the store's reply to the release. The store keeps nothing of the hold any more: a request that may still
    /// arrive is refused from now on.
    pub(super) fn on_gone_from_store(&self, reply: &Reply) {
        let mut state = self.state();
        let has_orphan_request = std::mem::take(&mut state.has_orphan_request);
        let outcome = match reply {
            Reply::Released { .. } | Reply::Granted { .. } => ReleaseOutcome::Released,
            // The request before this one may have been carried out.
            _ if matches!(state.outcome, ReleaseOutcome::InDoubt) => {
                ReleaseOutcome::Failed(self.no_reply_error())
            }
            reply => ReleaseOutcome::Failed(Box::new(DriverError::refused(reply))),
        };
        if !state.outcome.is_final() {
            state.outcome = outcome;
        }
        drop(state);
        self.notify();
        if has_orphan_request {
            let undo = CleanupJob::undo(&self.core, &self.subject, self.owner, self.terms.lease);
            self.core.cleanup.push(undo);
        }
    }

    /// Notes that the release brought no reply, which is what its guards report.
    pub(super) fn release_failed(&self, failure: &StoreError) {
        self.set_outcome(ReleaseOutcome::Failed(Box::new(DriverError::StoreError(
            failure.clone(),
        ))));
    }

    /// Notes that a release was sent whose reply will not be received.
    pub(super) fn release_in_doubt(&self) {
        let mut state = self.state();
        if matches!(state.outcome, ReleaseOutcome::Open) {
            state.outcome = ReleaseOutcome::InDoubt;
        }
    }

    /// Notes that no further release is sent to the store.
    pub(super) fn release_given_up(&self) {
        self.set_outcome(ReleaseOutcome::Failed(self.no_reply_error()));
    }

    /// Resolves to the outcome of the release, once it is known.
    pub(super) async fn released(&self) -> Result<(), DriverError> {
        loop {
            // Registered before the state is checked: the outcome is set first and notified afterwards.
            let settled = self.end_signal().notified();
            match &self.state().outcome {
                ReleaseOutcome::Open | ReleaseOutcome::InDoubt => {}
                ReleaseOutcome::Released | ReleaseOutcome::LeftToExpire => return Ok(()),
                ReleaseOutcome::Failed(error) => return Err((**error).clone()),
            }
            self.core.waker_executor.with_waker_proxy(settled).await;
        }
    }

    fn set_outcome(&self, outcome: ReleaseOutcome) {
        let mut state = self.state();
        if !state.outcome.is_final() {
            state.outcome = outcome;
        }
        drop(state);
        self.notify();
    }

    fn no_reply_error(&self) -> Box<DriverError> {
        let limit = self.core.settings.command_timeout;
        Box::new(DriverError::StoreError(no_reply(limit)))
    }
}
