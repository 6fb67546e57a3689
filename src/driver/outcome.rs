//! The outcome of a hold's release: the guards that the release overtook report the same.
//!
//! | state    | means                                                           | left when                            |
//! |----------|-----------------------------------------------------------------|--------------------------------------|
//! | open     | not released yet, or the request is under way                   | the store answers, or nobody asks on |
//! | in doubt | a request may have been carried out whose answer was not heard  | the same                             |
//! | released | the hold was there until then                                   | never                                |
//! | failed   | it was not there any more, or the store does not answer         | never                                |
//! | left     | the store was not asked: the hold is left to its lease          | never                                |

use super::hold::Hold;
use super::job::Job;
use super::{Trouble, no_answer};
use crate::engine::Failure;
use crate::protocol::Reply;

/// The outcome of a hold's release, as far as it is known.
#[derive(Debug, Default)]
pub(super) enum Outcome {
    #[default]
    Open,
    InDoubt,
    Released,
    Failed(Box<Trouble>),
    Left,
}

impl Outcome {
    pub(super) const fn is_left(&self) -> bool {
        matches!(self, Self::Left)
    }

    const fn is_settled(&self) -> bool {
        !matches!(self, Self::Open | Self::InDoubt)
    }
}

impl Hold {
    /// Notes the store's answer to the release. The store has nothing of the hold any more: what may still come is refused from
    /// now on.
    pub(super) fn has_left(&self, reply: &Reply) {
        let mut state = self.state();
        let echoes = std::mem::take(&mut state.echoes);
        let outcome = match reply {
            Reply::Released { .. } | Reply::Granted { .. } => Outcome::Released,
            // The one before may have been carried out.
            _ if matches!(state.outcome, Outcome::InDoubt) => Outcome::Failed(self.unanswered()),
            reply => Outcome::Failed(Box::new(Trouble::refused(reply))),
        };
        if !state.outcome.is_settled() {
            state.outcome = outcome;
        }
        drop(state);
        self.notify();
        if echoes {
            let undo = Job::undo(&self.core, &self.subject, self.owner, self.terms.lease);
            self.core.cleanup.push(undo);
        }
    }

    /// Notes that the release has brought no answer, and that its guards report this.
    pub(super) fn release_failed(&self, failure: &Failure) {
        self.settle(Outcome::Failed(Box::new(Trouble::Failure(failure.clone()))));
    }

    /// Notes that a release was sent whose answer nobody will hear.
    pub(super) fn release_in_doubt(&self) {
        let mut state = self.state();
        if matches!(state.outcome, Outcome::Open) {
            state.outcome = Outcome::InDoubt;
        }
    }

    /// Notes that nobody asks the store any more.
    pub(super) fn release_given_up(&self) {
        self.settle(Outcome::Failed(self.unanswered()));
    }

    /// Resolves to what the release came to, once that is known.
    pub(super) async fn released(&self) -> Result<(), Trouble> {
        loop {
            // Before the state is looked at: whoever settles it looks here afterwards.
            let settled = self.news().notified();
            match &self.state().outcome {
                Outcome::Open | Outcome::InDoubt => {}
                Outcome::Released | Outcome::Left => return Ok(()),
                Outcome::Failed(trouble) => return Err((**trouble).clone()),
            }
            self.core.wakeups.shielded(settled).await;
        }
    }

    fn settle(&self, outcome: Outcome) {
        let mut state = self.state();
        if !state.outcome.is_settled() {
            state.outcome = outcome;
        }
        drop(state);
        self.notify();
    }

    fn unanswered(&self) -> Box<Trouble> {
        let limit = self.core.settings.command_timeout;
        Box::new(Trouble::Failure(no_answer(limit)))
    }
}
