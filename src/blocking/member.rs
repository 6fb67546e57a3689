//! The blocking version of the members of a multi-lock or quorum lock.

use std::sync::Arc;
use std::time::Duration;

use super::Lock;
use super::worker::Worker;
use crate::{Error, Lost};

/// The blocking version of [`crate::Member`]: made of any [`Lock`].
#[derive(Clone, Debug)]
pub struct Member {
    member: crate::Member,
    worker: Arc<Worker>,
}

impl Member {
    /// Returns the lock's name. See [`crate::Member::name`].
    pub fn name(&self) -> &str {
        self.member.name()
    }
}

impl<K> From<Lock<K>> for Member {
    fn from(Lock { lock, worker }: Lock<K>) -> Self {
        let member = lock.into();
        Self { member, worker }
    }
}

/// The workers of all members' clients: they renew the members' leases for as long as they live.
#[derive(Clone, Debug)]
pub(super) struct Workers(Vec<Arc<Worker>>);

impl Workers {
    pub(super) fn of(members: impl IntoIterator<Item = Member>) -> (Vec<crate::Member>, Self) {
        let members = members.into_iter();
        let (members, workers) = members.map(|one| (one.member, one.worker)).unzip();
        (members, Self(workers))
    }

    /// Runs the work on the first member's worker.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        match self.0.first() {
            Some(worker) => worker.run(work)?,
            None => Err(Error::InvalidOption {
                name: None,
                option: "members",
                reason: "there must be at least one member".into(),
            }),
        }
    }

    /// Waits for the loss of the lock for at most `timeout`.
    pub(super) fn wait_lost(
        &self,
        timeout: Duration,
        lost: impl Future<Output = Option<Lost>> + Send + 'static,
    ) -> Option<Lost> {
        let lost = self.0.first()?.run_for(timeout, lost);
        lost.ok().flatten().flatten()
    }
}
