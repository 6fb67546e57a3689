//! A party is one side of a lock: a thread in Java or a task of ours, with the same operations for both.
//!
//! A scenario is written once for two parties and played both ways round.

mod counting;
mod java;
mod latch;
mod ours;
mod permits;
mod read_write;
mod transaction;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Span;
use crate::failure::{Failure, Outcome, ensure};
use crate::library::Shared;
pub(crate) use java::{Connection, JavaThread, millis};
pub(crate) use ours::{OurTask, nothing_to_hold};
pub(crate) use read_write::Sides;
pub(crate) use transaction::{End, transaction_lock};

/// One side of a lock.
pub(crate) enum Party {
    Java(JavaThread),
    Ours(OurTask),
}

/// The kind of Redisson's lock that a scenario is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A counting semaphore; its permits have no owners, so there is nothing to hold.
    Counting,
    Fair,
    Fenced,
    /// A latch; there is nothing to hold here, either.
    Latch,
    /// Several plain locks at once, `a+b`.
    Multi,
    /// A permit of a semaphore.
    Permit,
    Plain,
    /// The reader's side of a read/write lock.
    Read,
    /// The writer's side of a read/write lock.
    Write,
}

impl Kind {
    pub(crate) const fn shared(self) -> Shared {
        match self {
            Self::Counting => Shared::Counting,
            Self::Fair => Shared::Fair,
            Self::Fenced => Shared::Fenced,
            Self::Latch => Shared::Latch,
            Self::Multi => Shared::Multi,
            Self::Permit => Shared::Semaphore,
            Self::Plain => Shared::Plain,
            Self::Read | Self::Write => Shared::ReadWrite,
        }
    }

    /// Returns the word that names this kind to the peers.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Counting
            | Self::Fair
            | Self::Fenced
            | Self::Latch
            | Self::Multi
            | Self::Permit
            | Self::Plain => self.shared().word(),
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The lease with which a lock is acquired.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Term {
    /// A lease that expires by itself.
    Fixed(Duration),
    /// A lease that is renewed while the lock is held: by Redisson's watchdog, by our keep-alive.
    Kept,
}

/// The result of an unlock.
#[derive(Debug)]
pub(crate) enum Unlocked {
    Done(Span),
    /// The lock was not the caller's to unlock: an `IllegalMonitorStateException` in Java, `Error::Lost` here.
    Refused(String),
}

impl Unlocked {
    pub(crate) fn done(self) -> Outcome<Span> {
        match self {
            Self::Done(span) => Ok(span),
            Self::Refused(why) => Err(Failure::new(format!("the unlock was refused: {why}"))),
        }
    }

    pub(crate) fn refused(self) -> Outcome<String> {
        match self {
            Self::Done(_) => Err(Failure::new("the unlock went through and must not")),
            Self::Refused(why) => Ok(why),
        }
    }
}

impl Party {
    /// Returns the same party, which acquires locks of this kind.
    pub(crate) fn side(&self, kind: Kind) -> Self {
        match self {
            Self::Java(thread) => Self::Java(thread.side(kind)),
            Self::Ours(task) => Self::Ours(task.side(kind)),
        }
    }

    /// Returns another party with the same client.
    pub(crate) async fn sibling(&self) -> Outcome<Self> {
        Ok(match self {
            Self::Java(thread) => Self::Java(thread.sibling().await?),
            Self::Ours(task) => Self::Ours(task.sibling()),
        })
    }

    /// Returns the name that the table shows.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Java(thread) => format!("Java ({})", thread.peer().build().version),
            Self::Ours(_) => "we".into(),
        }
    }

    /// Waits for the lock without a timeout.
    pub(crate) async fn lock(&mut self, name: &str, term: Term) -> Outcome<Span> {
        match self {
            Self::Java(thread) => thread.lock(name, term).await,
            Self::Ours(task) => task.lock(name, term).await,
        }
    }

    /// Waits for the lock for at most `wait`; with a `wait` of zero it sends one request.
    pub(crate) async fn try_lock(
        &mut self,
        name: &str,
        wait: Duration,
        term: Term,
    ) -> Outcome<(bool, Span)> {
        match self {
            Self::Java(thread) => thread.try_lock(name, wait, term).await,
            Self::Ours(task) => task.try_lock(name, wait, term).await,
        }
    }

    pub(crate) async fn unlock(&mut self, name: &str) -> Outcome<Unlocked> {
        match self {
            Self::Java(thread) => thread.unlock(name).await,
            Self::Ours(task) => task.unlock(name).await,
        }
    }

    /// Releases the lock whatever party holds it; reports whether it was held.
    pub(crate) async fn force_unlock(&self, name: &str) -> Outcome<bool> {
        match self {
            Self::Java(thread) => thread.ask_bool("force_unlock", name).await,
            Self::Ours(task) => Ok(task.admin().force_release(name).await?),
        }
    }

    pub(crate) async fn is_locked(&self, name: &str) -> Outcome<bool> {
        match self {
            Self::Java(thread) => thread.ask_bool("is_locked", name).await,
            Self::Ours(task) => Ok(task.admin().inspect(name).await?.is_some()),
        }
    }

    /// Returns how long the lock stays held if it is not renewed, as this side sees it.
    pub(crate) async fn ttl(&self, name: &str) -> Outcome<Option<Duration>> {
        match self {
            Self::Java(thread) => thread.ttl(name).await,
            Self::Ours(task) => {
                let info = task.admin().inspect(name).await?;
                Ok(info.and_then(|info| info.ttl))
            }
        }
    }

    /// Returns how often this party itself holds the lock.
    pub(crate) async fn hold_count(&self, name: &str) -> Outcome<u64> {
        match self {
            Self::Java(thread) => thread.hold_count(name).await,
            Self::Ours(task) => Ok(task.hold_count(name)),
        }
    }

    /// Reports whether this party itself holds the lock, by its own account.
    pub(crate) async fn is_held(&self, name: &str) -> Outcome<bool> {
        match self {
            Self::Java(thread) => thread.ask_bool("is_mine", name).await,
            Self::Ours(task) => Ok(task.is_held(name)),
        }
    }

    /// Returns every holder of the lock and its hold count, as this side sees it.
    pub(crate) async fn holders(&self, name: &str) -> Outcome<BTreeMap<String, u64>> {
        match self {
            Self::Java(thread) => thread.holders(name).await,
            Self::Ours(task) => task.holders(name).await,
        }
    }

    /// Returns the owner id that is in the store while this party holds the lock.
    pub(crate) fn owner(&self, name: &str) -> Outcome<String> {
        match self {
            Self::Java(thread) => Ok(thread.owner().to_owned()),
            Self::Ours(task) => task.owner(name),
        }
    }

    /// Returns the token of the fenced lock that this party holds: that of its last acquire.
    pub(crate) async fn token(&self, name: &str) -> Outcome<u64> {
        match self {
            Self::Java(thread) => thread.token(name).await,
            Self::Ours(task) => task.token(name),
        }
    }

    /// Returns how long before the end of a lease this side may release the lock by itself: a guard of ours is lost while the store's lease
    /// has an allowance for drifting clocks left, 1 % and 2 ms.
    pub(crate) fn gives_up_early(&self, lease: Duration) -> Duration {
        match self {
            Self::Java(_) => Duration::ZERO,
            Self::Ours(_) => lease / 100 + Duration::from_millis(2),
        }
    }

    /// Tries to acquire the lock once and must be told that another party holds it.
    pub(crate) async fn is_excluded(&mut self, name: &str) -> Outcome {
        let (granted, _) = self.try_lock(name, Duration::ZERO, Term::Kept).await?;
        ensure!(!granted, "{} got `{name}` while it is held", self.title());
        Ok(())
    }

    /// Acquires the lock and releases it: it must be free.
    pub(crate) async fn finds_lock_free(&mut self, name: &str) -> Outcome {
        let (granted, _) = self.try_lock(name, Duration::ZERO, Term::Kept).await?;
        ensure!(
            granted,
            "{} did not get `{name}` though it is free",
            self.title()
        );
        self.unlock(name).await?.done()?;
        Ok(())
    }

    /// Acquires and releases a lock where a waiter has just given up: a waiter of ours returns at once, and its entry in the store is
    /// removed in the background, so the lock is free soon.
    pub(crate) async fn soon_finds_it_free(&mut self, name: &str) -> Outcome {
        let (granted, _) = self.try_lock(name, A_MOMENT, Term::Kept).await?;
        ensure!(
            granted,
            "{} did not get `{name}` within {A_MOMENT:?} though it is free",
            self.title()
        );
        self.unlock(name).await?.done()?;
        Ok(())
    }

    /// Closes its connections; locks that it still holds are released or left to their leases.
    pub(crate) async fn close(&mut self) -> Outcome {
        match self {
            Self::Java(thread) => thread.close().await,
            Self::Ours(task) => task.close().await,
        }
    }
}

/// Upper bound for removing a waiter that gave up. A writer of ours counts as waiting for six seconds, and a waiter in the queue of a fair
/// lock for ten.
const A_MOMENT: Duration = Duration::from_secs(60);
