//! A turn of ours at the read/write lock: writers count twice, readers check whether both counts agree.
//!
//! The second word of a line in the log names the side: `we-1/3/write`.

use std::time::Duration;

use distlock::{Guard, Lease};
use redis::AsyncCommands;

use super::{LockMode, Task};
use crate::checker::Grant;
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure, granted};
use crate::support::SeededRng;

impl Task {
    /// Plays one turn, in this task's way; returns nothing if the wait timed out before the lock was free.
    pub(super) async fn read_or_write(
        &mut self,
        name: String,
        random: &mut SeededRng,
    ) -> Outcome<Vec<Grant>> {
        let (name, slowly) = (&*name, random.chance(6));
        if self.work.manner == LockMode::Unlocked {
            let writes = self.number.is_multiple_of(2);
            return Ok(vec![if writes {
                self.add(name, slowly).await?
            } else {
                self.look(name, slowly).await?
            }]);
        }
        let lock = self.client.rw_lock(name);
        let (read, write) = (lock.read(), lock.write());
        let owner = self.client.new_owner();
        let mut held = Vec::new();
        match self.number % 8 {
            0 | 5 | 7 => {
                let guards = match self.number % 8 {
                    5 => {
                        let write = write.with_owner(&owner);
                        vec![write.acquire().await?, write.acquire().await?]
                    }
                    7 => Vec::from_iter(granted(write.acquire_timeout(PATIENCE).await)?),
                    _ => vec![write.acquire().await?],
                };
                if !guards.is_empty() {
                    held.push(self.add(name, slowly).await?);
                }
                release_guards(guards, random).await?;
            }
            2 => {
                let reader = read.acquire().await?;
                held.push(self.look(name, slowly).await?);
                if let Some(writer) = reader.try_upgrade().await? {
                    held.push(self.add(name, slowly).await?);
                    release_guards(vec![writer], random).await?;
                }
                release_guards(vec![reader], random).await?;
            }
            4 => {
                let writer = write.acquire().await?;
                held.push(self.add(name, slowly).await?);
                let reader = writer.downgrade().await?;
                held.push(self.look(name, slowly).await?);
                release_guards(vec![reader], random).await?;
            }
            number => {
                let guards = match number {
                    3 => {
                        let read = read.with_owner(&owner);
                        vec![read.acquire().await?, read.acquire().await?]
                    }
                    6 => {
                        let lease = Lease::Fixed(Duration::from_secs(10));
                        vec![read.with_lease(lease).acquire().await?]
                    }
                    _ => vec![read.acquire().await?],
                };
                held.push(self.look(name, slowly).await?);
                release_guards(guards, random).await?;
            }
        }
        Ok(held)
    }

    async fn add(&mut self, name: &str, slowly: bool) -> Outcome<Grant> {
        let from = Stamp::now();
        self.add_one(name, slowly).await?;
        let counted: u64 = self.counters.get(format!("counter:{name}")).await?;
        let () = self.counters.set(format!("mirror:{name}"), counted).await?;
        Ok(self.grant(name, "write", from))
    }

    async fn look(&mut self, name: &str, slowly: bool) -> Outcome<Grant> {
        let from = Stamp::now();
        let counted: Option<u64> = self.counters.get(format!("counter:{name}")).await?;
        if slowly {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mirrored: Option<u64> = self.counters.get(format!("mirror:{name}")).await?;
        ensure!(
            counted == mirrored || self.work.manner == LockMode::Unlocked,
            "somebody wrote {name} while {} read it: {counted:?}, {mirrored:?}",
            self.work.who
        );
        Ok(self.grant(name, "read", from))
    }

    /// Returns a grant that was held until now.
    fn grant(&self, name: &str, side: &str, from: Stamp) -> Grant {
        Grant {
            name: name.into(),
            who: format!("{}/{}/{side}", self.work.who, self.number),
            from,
            to: Stamp::now(),
            token: None,
        }
    }
}

/// Releases the lock, in both ways there are: the other is to drop it.
async fn release_guards<K>(guards: Vec<Guard<K>>, random: &mut SeededRng) -> Outcome {
    for guard in guards.into_iter().rev() {
        guard.check()?;
        if random.chance(50) {
            guard.release().await?;
        }
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(2);
