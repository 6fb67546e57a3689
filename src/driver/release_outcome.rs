//! The outcome of a hold's release: the guards that the release overtook report the same.
//!
//! | state    | means                                                           | left when                            |
//! |----------|-----------------------------------------------------------------|--------------------------------------|
//! | open     | not released yet, or the request is under way                   | the store answers, or nobody asks on |
//! | in doubt | a request may have been carried out whose answer was not heard  | the same                             |
//! | released | the hold was there until then                                   | never                                |
//! | failed   | it was not there any more, or the store does not answer         | never                                |
//! | left     | the store was not asked: the hold is left to its lease          | never                                |

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
    /// Notes the store's answer to the release. The store has nothing of the hold any more: what may still come is refused from
    /// now on.
    pub(super) fn on_gone_from_store(&self, reply: &Reply) {
        let mut state = self.state();
        let has_orphan_request = std::mem::take(&mut state.has_orphan_request);
        let outcome = match reply {
            Reply::Released { .. } | Reply::Granted { .. } => ReleaseOutcome::Released,
            // The one before may have been carried out.
            _ if matches!(state.outcome, ReleaseOutcome::InDoubt) => {
                ReleaseOutcome::Failed(self.unanswered())
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

    /// Notes that the release has brought no answer, and that its guards report this.
    pub(super) fn release_failed(&self, failure: &StoreError) {
        self.set_outcome(ReleaseOutcome::Failed(Box::new(DriverError::StoreError(
            failure.clone(),
        ))));
    }

    /// Notes that a release was sent whose answer nobody will hear.
    pub(super) fn release_in_doubt(&self) {
        let mut state = self.state();
        if matches!(state.outcome, ReleaseOutcome::Open) {
            state.outcome = ReleaseOutcome::InDoubt;
        }
    }

    /// Notes that nobody asks the store any more.
    pub(super) fn release_given_up(&self) {
        self.set_outcome(ReleaseOutcome::Failed(self.unanswered()));
    }

    /// Resolves to what the release came to, once that is known.
    pub(super) async fn released(&self) -> Result<(), DriverError> {
        loop {
            // Before the state is looked at: whoever settles it looks here afterwards.
            let settled = self.end_signal().notified();
            match &self.state().outcome {
                ReleaseOutcome::Open | ReleaseOutcome::InDoubt => {}
                ReleaseOutcome::Released | ReleaseOutcome::LeftToExpire => return Ok(()),
                ReleaseOutcome::Failed(error) => return Err((**error).clone()),
            }
            self.core.waker_executor.with_proxy(settled).await;
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

    fn unanswered(&self) -> Box<DriverError> {
        let limit = self.core.settings.command_timeout;
        Box::new(DriverError::StoreError(no_reply(limit)))
    }
}
