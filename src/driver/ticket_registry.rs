//! The store's lines that a client stands in, so that it leaves them when it is closed: whoever waits there may not be
//! polled any more, and its process end at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cleanup_job::CleanupJob;
use crate::protocol::OwnerId;

/// Who stands in one, and what takes it out.
#[derive(Debug, Default)]
pub(super) struct TicketRegistry(Mutex<HashMap<OwnerId, CleanupJob>>);

impl TicketRegistry {
    /// Somebody is about to get in line.
    pub(super) fn insert(&self, owner: OwnerId, leave_job: CleanupJob) {
        self.lock().insert(owner, leave_job);
    }

    /// Somebody leaves by itself; says whether that has not been seen to by [`drain`](Self::drain).
    pub(super) fn remove(&self, owner: &OwnerId) -> bool {
        self.lock().remove(owner).is_some()
    }

    /// What takes all of them out.
    pub(super) fn drain(&self) -> Vec<CleanupJob> {
        let all = std::mem::take(&mut *self.lock());
        all.into_values().collect()
    }

    /// The names of some, for those who debug.
    pub(super) fn some_names(&self, most: usize) -> Vec<Arc<str>> {
        let tickets = self.lock();
        let names = tickets.values().map(|job| job.name().clone());
        names.take(most).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, CleanupJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
