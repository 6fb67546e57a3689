//! A latch, as one side sees it.

use std::time::Duration;

use serde_json::json;

use super::Party;
use super::java::{JavaNumber, millis, number, yes_or_no};
use super::ours::timed;
use crate::clock::Span;
use crate::failure::{Outcome, ensure};

/// The latch of this name, on one side.
pub(crate) enum Latch<'a> {
    Java(JavaNumber<'a>),
    Ours(distlock::Latch),
}

impl Party {
    pub(crate) fn latch<'a>(&'a self, name: &'a str) -> Latch<'a> {
        match self {
            Self::Java(thread) => Latch::Java(JavaNumber {
                thread,
                sort: "latch",
                name,
            }),
            Self::Ours(task) => Latch::Ours(task.client().latch(name)),
        }
    }
}

impl Latch<'_> {
    /// Closes the latch, unless it is closed.
    pub(crate) async fn try_set(&self, count: u32) -> Outcome<bool> {
        match self {
            Self::Java(latch) => yes_or_no(&latch.ask("try_set", json!({"count": count})).await?.0),
            Self::Ours(latch) => Ok(latch.try_set(count.into()).await?),
        }
    }

    /// Counts down. Our call returns the count that is left, Java's does not.
    pub(crate) async fn count_down(&self) -> Outcome<Span> {
        match self {
            Self::Java(latch) => Ok(latch.ask("down", json!({})).await?.1),
            Self::Ours(latch) => Ok(timed(latch.count_down()).await?.1),
        }
    }

    pub(crate) async fn count(&self) -> Outcome<i64> {
        match self {
            Self::Java(latch) => number(&latch.ask("count", json!({})).await?.0),
            Self::Ours(latch) => Ok(i64::try_from(latch.count().await?)?),
        }
    }

    /// Waits without a timeout.
    pub(crate) async fn wait(&self) -> Outcome<Span> {
        match self {
            Self::Java(latch) => {
                let (open, span) = latch.ask("wait", json!({"wait": -1})).await?;
                ensure!(open == true, "it waited without end, and it is not open");
                Ok(span)
            }
            Self::Ours(latch) => Ok(timed(latch.wait()).await?.1),
        }
    }

    /// Waits for at most `wait`; reports whether the latch is open.
    pub(crate) async fn wait_within(&self, wait: Duration) -> Outcome<(bool, Span)> {
        match self {
            Self::Java(latch) => {
                let (open, span) = latch.ask("wait", json!({"wait": millis(wait)})).await?;
                Ok((yes_or_no(&open)?, span))
            }
            Self::Ours(latch) => timed(latch.wait_timeout(wait)).await,
        }
    }

    /// Deletes the latch; reports whether it existed.
    pub(crate) async fn delete(&self) -> Outcome<bool> {
        match self {
            Self::Java(latch) => yes_or_no(&latch.ask("delete", json!({})).await?.0),
            Self::Ours(latch) => Ok(latch.delete().await?),
        }
    }
}
