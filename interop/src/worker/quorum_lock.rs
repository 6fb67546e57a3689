//! The part of the worker for one lock on a majority of several servers.

use std::time::Duration;

use distlock::{Error, Lease, QuorumGuard};

use super::{LockMode, Task};
use crate::checker::Grant;
use crate::clock::Stamp;
use crate::failure::Outcome;
use crate::quorum::Format;
use crate::support::SeededRng;

impl Task {
    /// Plays one turn; returns its grant, or `None` if the wait timed out before a majority of servers granted the lock.
    pub(super) async fn on_most(
        &mut self,
        name: String,
        random: &mut SeededRng,
    ) -> Outcome<Option<Grant>> {
        let mut held = None;
        if self.work.manner != LockMode::Unlocked {
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
            // Both ways to release a lock: the other is to drop it.
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
            // Servers may not reply in time. The task holds nothing then, and the error says so.
            Err(Error::Several { .. } | Error::Timeout { .. }) => Ok(None),
            voted => Ok(voted?),
        }
    }
}

/// The lease; servers have a twentieth of it to reply.
const LEASE: Duration = Duration::from_secs(20);
