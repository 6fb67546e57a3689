//! The tickets of a client in the queues of the store, so that it leaves them when it is closed: a waiting future may
//! not be polled any more, and its process may end at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cleanup_job::CleanupJob;
use crate::protocol::OwnerId;

/// The owner of each ticket, and the job that removes it from the queue.
#[derive(Debug, Default)]
pub(super) struct TicketRegistry(Mutex<HashMap<OwnerId, CleanupJob>>);

impl TicketRegistry {
    /// Registers an owner that is about to join a queue.
    pub(super) fn insert(&self, owner: OwnerId, leave_job: CleanupJob) {
        self.lock().insert(owner, leave_job);
    }

    /// Removes an owner that leaves by itself; returns whether [`drain`](Self::drain) has not removed it before.
    pub(super) fn remove(&self, owner: &OwnerId) -> bool {
        self.lock().remove(owner).is_some()
    }

    /// Removes all tickets, and returns the jobs that remove them from the queues.
    pub(super) fn drain(&self) -> Vec<CleanupJob> {
        let all = std::mem::take(&mut *self.lock());
        all.into_values().collect()
    }

    /// Returns the names of some tickets, for debug output.
    pub(super) fn some_names(&self, most: usize) -> Vec<Arc<str>> {
        let tickets = self.lock();
        let names = tickets.values().map(|job| job.name().clone());
        names.take(most).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, CleanupJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
