//! A turn of ours with permits: one or two, for a moment.

use std::time::Duration;

use distlock::Lease;

use super::Task;
use crate::checker::Grant;
use crate::clock::Stamp;
use crate::failure::Outcome;
use crate::support::SeededRng;

impl Task {
    /// Plays one turn; returns one line of the log for each permit.
    pub(super) async fn permits(
        &self,
        name: String,
        random: &mut SeededRng,
    ) -> Outcome<Vec<Grant>> {
        let count = if self.number % 4 == 3 { 2 } else { 1 };
        let lease = match self.number % 2 {
            0 => Lease::KeepAlive(HAMMER_LEASE),
            _ => Lease::Fixed(HAMMER_LEASE),
        };
        let permits = self.client.semaphore(&*name).permits(count);
        let guard = permits.with_lease(lease).acquire().await?;
        let from = Stamp::now();
        tokio::time::sleep(self.a_moment(random)).await;
        let to = Stamp::now();
        guard.check()?;
        // Both ways to release it: the other is to drop it.
        if random.chance(50) {
            guard.release().await?;
        }
        let grant = Grant {
            who: format!("{}/{}", self.work.who, self.number),
            name,
            from,
            to,
            token: None,
        };
        Ok(vec![grant; count as usize])
    }
}

/// The lease of permits; those of a killed process come back after it. Java's workers have the same.
pub(crate) const HAMMER_LEASE: Duration = Duration::from_secs(4);
