//! A turn of ours with permits of a counting semaphore: one to three, for a moment, and a record of them.

use std::time::Duration;

use redis::AsyncCommands;

use super::Task;
use crate::checker::Grant;
use crate::clock::Stamp;
use crate::failure::Outcome;
use crate::support::SeededRng;

impl Task {
    /// Plays one turn; returns one line of the log for each permit, none if the wait timed out before there were enough.
    pub(super) async fn counted(
        &mut self,
        name: String,
        random: &mut SeededRng,
    ) -> Outcome<Vec<Grant>> {
        let count = 1 + random.below(3);
        let (permits, by) = (u32::try_from(count)?, i64::try_from(count)?);
        let semaphore = self.client.counting_semaphore(&*name);
        // A permit that is possibly in use is recorded before its request, one that is certainly in use after its grant: a worker that is
        // killed between the two leaves a record that is not wrong. Java's workers keep the same record.
        let (perhaps, certain) = (format!("perhaps:{name}"), format!("certain:{name}"));
        self.book(&perhaps, by).await?;
        let taken = match self.number % 8 {
            7 => {
                let wait = Duration::from_secs(2);
                semaphore.acquire_timeout(permits, wait).await?
            }
            _ => semaphore.acquire(permits).await.map(|()| true)?,
        };
        if !taken {
            self.book(&perhaps, -by).await?;
            return Ok(Vec::new());
        }
        let from = Stamp::now();
        self.book(&certain, by).await?;
        tokio::time::sleep(self.a_moment(random)).await;
        self.book(&certain, -by).await?;
        let to = Stamp::now();
        semaphore.release(permits).await?;
        self.book(&perhaps, -by).await?;
        let grant = Grant {
            who: format!("{}/{}", self.work.who, self.number),
            name,
            from,
            to,
            token: None,
        };
        Ok(vec![grant; permits as usize])
    }

    async fn book(&mut self, what: &str, by: i64) -> Outcome {
        let _: i64 = self.counters.incr(what, by).await?;
        Ok(())
    }
}
