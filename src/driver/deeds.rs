//! The requests of this client that must not be carried out twice, while it waits for their answers.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Core;
use crate::protocol::{Deed, OwnerId, Subject};

/// The numbers of those that are not settled, by what they are about.
#[derive(Debug, Default)]
pub(super) struct Deeds(Mutex<HashMap<Subject, BTreeSet<i64>>>);

/// One of them; settled when this goes, be it answered or given up.
#[derive(Debug)]
pub(super) struct Unsettled<'a> {
    core: &'a Core,
    subject: &'a Subject,
    pub(super) deed: Deed,
}

impl Core {
    /// A new request about this, which is to be settled once its outcome is of no concern any more.
    pub(super) fn begin_deed(&self, subject: &Subject) -> Deed {
        let mut open = self.deeds.lock();
        let numbers = open.entry(subject.clone()).or_default();
        // Under the lock: no lesser number is ever begun later, so that what is said to be settled is.
        let number = self.fresh_number();
        numbers.insert(number);
        let settled = numbers.first().copied().unwrap_or(number);
        Deed {
            id: OwnerId::new(self.client, number),
            settled,
        }
    }

    /// The same, until what is returned goes.
    pub(super) fn unsettled<'a>(&'a self, subject: &'a Subject) -> Unsettled<'a> {
        Unsettled {
            core: self,
            subject,
            deed: self.begin_deed(subject),
        }
    }

    /// Its outcome is known, or given up: the store need not remember it, and refuses it if it still comes.
    pub(super) fn settle_deed(&self, subject: &Subject, id: OwnerId) {
        let mut open = self.deeds.lock();
        if let Some(numbers) = open.get_mut(subject) {
            numbers.remove(&id.number());
            if numbers.is_empty() {
                open.remove(subject);
            }
        }
    }
}

impl Deeds {
    fn lock(&self) -> MutexGuard<'_, HashMap<Subject, BTreeSet<i64>>> {
        // No code of a user's runs under this lock, so a poisoned one is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        // A forked child has its parent's lock as it was, perhaps held by a thread it does not have.
        if !self.core.is_forked() {
            self.core.settle_deed(self.subject, self.deed.id);
        }
    }
}
