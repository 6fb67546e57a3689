//! The stage for the simple lock: a client of another library and one of ours, with the same operations for both.
//!
//! There are fewer operations than those of a [party](crate::party): these libraries count no re-entry, force nothing, and renew nothing by
//! themselves.

mod ours;
mod theirs;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Span;
use crate::failure::{Outcome, ensure};
use crate::library::Build;
use crate::party::Unlocked;
use crate::stage::Direction;
use crate::world::World;
pub(crate) use ours::OurClient;
pub(crate) use theirs::{LockState, TheirClient};

/// The side that holds the lock, and the side that wants it.
pub(crate) struct Stage {
    pub(crate) holder: Side,
    pub(crate) other: Side,
    pub(crate) world: Arc<World>,
}

/// One side of a simple lock.
pub(crate) enum Side {
    Ours(OurClient),
    Theirs(TheirClient),
}

/// The lease with which a lock is acquired.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lease {
    /// A lease that expires by itself.
    Fixed(Duration),
    /// A lease that our client renews; in the other libraries a lease like any, which the scenario extends.
    Kept(Duration),
}

/// Whether our side may send scripts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scripts {
    Off,
    On,
}

impl Stage {
    pub(crate) async fn set(
        world: &Arc<World>,
        build: &Build,
        direction: Direction,
        scripts: Scripts,
    ) -> Outcome<Self> {
        let peer = world.peer(build).await?;
        let theirs = Side::Theirs(TheirClient::connect(&peer, &world.address()).await?);
        let ours = Side::Ours(OurClient::connect(&world.server().url(), scripts, "").await?);
        let (holder, other) = match direction {
            Direction::TheyHold => (theirs, ours),
            Direction::WeHold => (ours, theirs),
        };
        Ok(Self {
            holder,
            other,
            world: world.clone(),
        })
    }

    /// Closes both sides.
    pub(crate) async fn close(mut self) -> Outcome {
        self.holder.close().await?;
        self.other.close().await
    }
}

impl Lease {
    pub(crate) const fn time(self) -> Duration {
        match self {
            Self::Fixed(time) | Self::Kept(time) => time,
        }
    }
}

impl Side {
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Ours(_) => "we".into(),
            Self::Theirs(client) => client.title(),
        }
    }

    /// Waits for the lock without a timeout.
    pub(crate) async fn lock(&mut self, name: &str, lease: Lease) -> Outcome<Span> {
        match self {
            Self::Ours(client) => client.lock(name, lease).await,
            Self::Theirs(client) => client.lock(name, Some(lease.time())).await,
        }
    }

    /// Waits for the lock for at most `wait`; with a `wait` of zero it sends one request.
    pub(crate) async fn try_lock(
        &mut self,
        name: &str,
        wait: Duration,
        lease: Lease,
    ) -> Outcome<(bool, Span)> {
        match self {
            Self::Ours(client) => client.try_lock(name, wait, lease).await,
            Self::Theirs(client) => client.try_lock(name, wait, lease.time()).await,
        }
    }

    pub(crate) async fn unlock(&mut self, name: &str) -> Outcome<Unlocked> {
        match self {
            Self::Ours(client) => client.unlock(name).await,
            Self::Theirs(client) => client.unlock(name).await,
        }
    }

    /// Extends a lease to this long from now; returns the reason if the lock is not this side's any more.
    pub(crate) async fn extend(&self, name: &str, lease: Duration) -> Outcome<Option<String>> {
        match self {
            Self::Ours(client) => client.extend(name, lease).await,
            Self::Theirs(client) => client.extend(name, lease).await,
        }
    }

    /// Returns the value of the key while this side holds the lock.
    pub(crate) fn value(&self, name: &str) -> Outcome<String> {
        match self {
            Self::Ours(client) => client.value(name),
            Self::Theirs(client) => client.value(name),
        }
    }

    /// Reports whether this side holds the lock, by its own account.
    pub(crate) async fn is_held(&self, name: &str) -> Outcome<bool> {
        match self {
            Self::Ours(client) => Ok(client.is_held(name)),
            Self::Theirs(client) => client.is_held(name).await,
        }
    }

    /// Returns how long before the end of a lease this side may release the lock by itself: a guard of ours is lost while the store's lease
    /// has an allowance for drifting clocks left, 1 % and 2 ms.
    pub(crate) fn gives_up_early(&self, lease: Duration) -> Duration {
        match self {
            Self::Ours(_) => lease / 100 + Duration::from_millis(2),
            Self::Theirs(_) => Duration::ZERO,
        }
    }

    /// Tries to acquire the lock once and must be told that another side holds it.
    pub(crate) async fn is_excluded(&mut self, name: &str) -> Outcome {
        let (granted, _) = self.try_lock(name, Duration::ZERO, MINUTES).await?;
        ensure!(!granted, "{} got `{name}` while it is held", self.title());
        Ok(())
    }

    /// Acquires the lock and releases it: it must be free.
    pub(crate) async fn finds_lock_free(&mut self, name: &str) -> Outcome {
        let (granted, _) = self.try_lock(name, Duration::ZERO, MINUTES).await?;
        let who = self.title();
        ensure!(granted, "{who} did not get `{name}` though it is free");
        self.unlock(name).await?.done()?;
        Ok(())
    }

    async fn close(&mut self) -> Outcome {
        match self {
            Self::Ours(client) => client.close().await,
            Self::Theirs(client) => client.close().await,
        }
    }
}

/// A lease that outlasts every scenario.
pub(crate) const MINUTES: Lease = Lease::Fixed(Duration::from_secs(600));
