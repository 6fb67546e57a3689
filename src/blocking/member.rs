//! What several locks, and one on several servers, are made of, without `async`.

use std::sync::Arc;
use std::time::Duration;

use super::Lock;
use super::worker::Worker;
use crate::{Error, Lost};

/// [`crate::Member`] without `async`: made of any [`Lock`].
#[derive(Clone, Debug)]
pub struct Member {
    member: crate::Member,
    worker: Arc<Worker>,
}

impl Member {
    /// As [`crate::Member::name`].
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

/// Those of all members' clients: what was taken is looked after as long as they live.
#[derive(Clone, Debug)]
pub(super) struct Workers(Vec<Arc<Worker>>);

impl Workers {
    pub(super) fn of(members: impl IntoIterator<Item = Member>) -> (Vec<crate::Member>, Self) {
        let members = members.into_iter();
        let (members, workers) = members.map(|one| (one.member, one.worker)).unzip();
        (members, Self(workers))
    }

    /// On the first one's.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        match self.0.first() {
            Some(worker) => worker.run(work)?,
            None => Err(Error::InvalidOption {
                name: None,
                option: "members",
                reason: "no lock would be held".into(),
            }),
        }
    }

    /// Waits for the news for at most so long.
    pub(super) fn wait_lost(
        &self,
        timeout: Duration,
        lost: impl Future<Output = Option<Lost>> + Send + 'static,
    ) -> Option<Lost> {
        let lost = self.0.first()?.run_for(timeout, lost);
        lost.ok().flatten().flatten()
    }
}
