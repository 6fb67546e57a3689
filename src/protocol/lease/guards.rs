//! The guards of one hold.

use std::time::Duration;

use crate::protocol::Moment;

/// The guards of one hold: nearly always one, which needs no allocation.
#[derive(Debug, Default)]
pub(super) struct Guards {
    first: Option<GuardTerms>,
    more: Vec<GuardTerms>,
}

/// The terms of one guard.
#[derive(Debug)]
pub(super) struct GuardTerms {
    pub(super) guard: u32,
    pub(super) keep_alive: Option<Duration>,
    pub(super) cutoff: Option<Moment>,
}

impl Guards {
    pub(super) fn push(&mut self, terms: GuardTerms) {
        if self.first.is_none() {
            self.first = Some(terms);
        } else {
            self.more.push(terms);
        }
    }

    pub(super) fn remove(&mut self, guard: u32) {
        self.more.retain(|terms| terms.guard != guard);
        if self
            .first
            .as_ref()
            .is_some_and(|terms| terms.guard == guard)
        {
            self.first = self.more.pop();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &GuardTerms> {
        self.first.iter().chain(&self.more)
    }
}
