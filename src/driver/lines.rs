//! The store's lines that a client stands in, so that it leaves them when it is closed: whoever waits there may not be
//! polled any more, and its process end at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::job::Job;
use crate::protocol::OwnerId;

/// Who stands in one, and what takes it out.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<HashMap<OwnerId, Job>>);

impl Lines {
    /// Somebody is about to get in line.
    pub(super) fn enter(&self, owner: OwnerId, takes_out: Job) {
        self.lock().insert(owner, takes_out);
    }

    /// Somebody leaves by itself; says whether that has not been seen to by [`close`](Self::close).
    pub(super) fn leave(&self, owner: &OwnerId) -> bool {
        self.lock().remove(owner).is_some()
    }

    /// What takes all of them out.
    pub(super) fn close(&self) -> Vec<Job> {
        let all = std::mem::take(&mut *self.lock());
        all.into_values().collect()
    }

    /// The names of some, for those who debug.
    pub(super) fn some_names(&self, most: usize) -> Vec<Arc<str>> {
        let lines = self.lock();
        let names = lines.values().map(|job| job.name().clone());
        names.take(most).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
