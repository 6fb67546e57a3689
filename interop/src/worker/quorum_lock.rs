//! Of the worker what is about one lock on most of several servers.

use std::time::Duration;

use distlock::{Error, Lease, QuorumGuard};

use super::{Manner, Task};
use crate::checker::Grant;
use crate::clock::Stamp;
use crate::failure::Outcome;
use crate::quorum::Format;
use crate::support::SeededRng;

impl Task {
    /// One grant; `None` if the wait was over before most servers granted it.
    pub(super) async fn on_most(
        &mut self,
        name: String,
        random: &mut SeededRng,
    ) -> Outcome<Option<Grant>> {
        let mut held = None;
        if self.work.manner != Manner::Unlocked {
            held = self.vote(&name).await?;
            if held.is_none() {
                return Ok(None);
            }
        }
        let from = Stamp::now();
        self.add_one(&name, random.chance(6))
            .await
            .map_err(|failure| failure.during("the counter"))?;
        let to = Stamp::now();
        if let Some(guard) = held {
            guard.check()?;
            // Both ways to give a lock back: the other is to drop it.
            if random.chance(50) {
                guard.release().await?;
            }
        }
        Ok(Some(Grant {
            who: format!("{}/{}", self.work.who, self.number),
            name,
            from,
            to,
            token: None,
        }))
    }

    async fn vote(&self, name: &str) -> Outcome<Option<QuorumGuard>> {
        let lock = Format::of(self.work.shared).lock(&self.clients, name);
        let kept = lock.clone().with_lease(Lease::KeepAlive(LEASE));
        let voted = match self.number % 4 {
            2 => {
                let fixed = lock.with_lease(Lease::Fixed(LEASE));
                fixed.acquire().await.map(Some)
            }
            3 => kept.acquire_timeout(Duration::from_secs(2)).await,
            _ => kept.acquire().await.map(Some),
        };
        match voted {
            // Servers may not answer in time. It has nothing then, and says so.
            Err(Error::Several { .. } | Error::Timeout { .. }) => Ok(None),
            voted => Ok(voted?),
        }
    }
}

/// Servers have a twentieth of it to answer.
const LEASE: Duration = Duration::from_secs(20);
