//! A counting semaphore, as one side sees it: its permits have no owners.

use std::time::Duration;

use distlock::CountingSemaphore;
use serde_json::json;

use super::Party;
use super::java::{JavaNumber, millis, number, yes_or_no};
use super::ours::timed;
use crate::clock::Span;
use crate::failure::{Outcome, ensure};

/// The counting semaphore of this name, on one side.
pub(crate) enum Counting<'a> {
    Java(JavaNumber<'a>),
    Ours(CountingSemaphore),
}

impl Party {
    pub(crate) fn counting<'a>(&'a self, name: &'a str) -> Counting<'a> {
        match self {
            Self::Java(thread) => Counting::Java(JavaNumber {
                thread,
                sort: "counting",
                name,
            }),
            Self::Ours(task) => Counting::Ours(task.client().counting_semaphore(name)),
        }
    }
}

impl Counting<'_> {
    /// Sets the number of permits, unless it is set.
    pub(crate) async fn try_set(&self, permits: u32) -> Outcome<bool> {
        match self {
            Self::Java(semaphore) => {
                yes_or_no(&semaphore.ask("try_set", json!({"count": permits})).await?.0)
            }
            Self::Ours(semaphore) => Ok(semaphore.try_set(permits).await?),
        }
    }

    pub(crate) async fn available(&self) -> Outcome<i64> {
        match self {
            Self::Java(semaphore) => number(&semaphore.ask("available", json!({})).await?.0),
            Self::Ours(semaphore) => Ok(semaphore.available().await?),
        }
    }

    /// Waits for this many permits without a timeout.
    pub(crate) async fn take(&self, permits: u32) -> Outcome<Span> {
        match self {
            Self::Java(semaphore) => {
                let (taken, span) = semaphore
                    .ask("take", json!({"count": permits, "wait": -1}))
                    .await?;
                ensure!(taken == true, "it waited without end, and got none");
                Ok(span)
            }
            Self::Ours(semaphore) => Ok(timed(semaphore.acquire(permits)).await?.1),
        }
    }

    /// Tries once to acquire this many permits.
    pub(crate) async fn try_take(&self, permits: u32) -> Outcome<bool> {
        Ok(match self {
            Self::Java(_) => self.take_within(permits, Duration::ZERO).await?.0,
            Self::Ours(semaphore) => semaphore.try_acquire(permits).await?,
        })
    }

    /// Waits for this many permits for at most `wait`.
    pub(crate) async fn take_within(&self, permits: u32, wait: Duration) -> Outcome<(bool, Span)> {
        match self {
            Self::Java(semaphore) => {
                let words = json!({"count": permits, "wait": millis(wait)});
                let (taken, span) = semaphore.ask("take", words).await?;
                Ok((yes_or_no(&taken)?, span))
            }
            Self::Ours(semaphore) => timed(semaphore.acquire_timeout(permits, wait)).await,
        }
    }

    /// Releases this many permits, whichever client acquired them.
    pub(crate) async fn release(&self, permits: u32) -> Outcome<Span> {
        match self {
            Self::Java(semaphore) => {
                Ok(semaphore.ask("release", json!({"count": permits})).await?.1)
            }
            Self::Ours(semaphore) => Ok(timed(semaphore.release(permits)).await?.1),
        }
    }

    /// Adds this many permits; a negative number takes some away.
    pub(crate) async fn add(&self, permits: i64) -> Outcome<Span> {
        match self {
            Self::Java(semaphore) => Ok(semaphore.ask("add", json!({"count": permits})).await?.1),
            Self::Ours(semaphore) => Ok(timed(semaphore.add(permits)).await?.1),
        }
    }

    /// Acquires all permits that are available.
    pub(crate) async fn drain(&self) -> Outcome<i64> {
        match self {
            Self::Java(semaphore) => number(&semaphore.ask("drain", json!({})).await?.0),
            Self::Ours(semaphore) => Ok(i64::try_from(semaphore.drain().await?)?),
        }
    }

    /// Deletes the semaphore; reports whether there was one.
    pub(crate) async fn delete(&self) -> Outcome<bool> {
        match self {
            Self::Java(semaphore) => yes_or_no(&semaphore.ask("delete", json!({})).await?.0),
            Self::Ours(semaphore) => Ok(semaphore.delete().await?),
        }
    }
}
