//! A semaphore that only counts, as one side sees it: permits that are nobody's.

use std::time::Duration;

use distlock::CountingSemaphore;
use serde_json::json;

use super::Party;
use super::java::{JavaNumber, millis, number, yes_or_no};
use super::ours::timed;
use crate::clock::Span;
use crate::failure::{Outcome, ensure};

/// One of them, by its name.
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
    /// Says how many there are, unless somebody has.
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

    /// Waits for so many without end.
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

    /// Asks once for so many.
    pub(crate) async fn try_take(&self, permits: u32) -> Outcome<bool> {
        Ok(match self {
            Self::Java(_) => self.take_within(permits, Duration::ZERO).await?.0,
            Self::Ours(semaphore) => semaphore.try_acquire(permits).await?,
        })
    }

    /// Waits for so many for at most that long.
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

    /// Gives so many back, whoever took them.
    pub(crate) async fn release(&self, permits: u32) -> Outcome<Span> {
        match self {
            Self::Java(semaphore) => {
                Ok(semaphore.ask("release", json!({"count": permits})).await?.1)
            }
            Self::Ours(semaphore) => Ok(timed(semaphore.release(permits)).await?.1),
        }
    }

    /// So many more, or fewer.
    pub(crate) async fn add(&self, permits: i64) -> Outcome<Span> {
        match self {
            Self::Java(semaphore) => Ok(semaphore.ask("add", json!({"count": permits})).await?.1),
            Self::Ours(semaphore) => Ok(timed(semaphore.add(permits)).await?.1),
        }
    }

    /// Takes all that are there.
    pub(crate) async fn drain(&self) -> Outcome<i64> {
        match self {
            Self::Java(semaphore) => number(&semaphore.ask("drain", json!({})).await?.0),
            Self::Ours(semaphore) => Ok(i64::try_from(semaphore.drain().await?)?),
        }
    }

    /// Forgets it; says whether there was one.
    pub(crate) async fn delete(&self) -> Outcome<bool> {
        match self {
            Self::Java(semaphore) => yes_or_no(&semaphore.ask("delete", json!({})).await?.0),
            Self::Ours(semaphore) => Ok(semaphore.delete().await?),
        }
    }
}
