//! The holds of local owners, so that an owner can re-enter its hold.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::hold::Hold;
use crate::protocol::Subject;

/// Live holds by local owner and name. The owner id in the store is another one, fresh for every first acquire: a
/// release still in flight must never affect a later hold of the same owner.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    holds: Mutex<Holds>,
}

type Holds = HashMap<(LocalOwner, Subject), Arc<Hold>>;

/// An owner as the user named it, within its client. Never zero, so that an optional one, which every waiter has, takes
/// no more room.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct LocalOwner(NonZeroU64);

impl LocalOwner {
    pub(super) fn new(number: i64) -> Self {
        Self(NonZeroU64::new(number.unsigned_abs()).unwrap_or(NonZeroU64::MAX))
    }
}

impl Owners {
    pub(super) fn find(&self, owner: LocalOwner, subject: &Subject) -> Option<Arc<Hold>> {
        self.lock().get(&(owner, subject.clone())).cloned()
    }

    pub(super) fn insert(&self, owner: LocalOwner, hold: Arc<Hold>) {
        self.lock().insert((owner, hold.subject.clone()), hold);
    }

    /// Forgets this hold; a later one of the same owner stays.
    pub(super) fn remove(&self, owner: LocalOwner, hold: &Hold) {
        let key = (owner, hold.subject.clone());
        let mut holds = self.lock();
        if holds.get(&key).is_some_and(|known| known.id == hold.id) {
            holds.remove(&key);
        }
    }

    /// Returns the names of some live holds, for debug output.
    pub(super) fn some_names(&self, most: usize) -> Vec<Arc<str>> {
        let holds = self.lock();
        holds
            .keys()
            .take(most)
            .map(|(_, subject)| subject.name.clone())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
