//! Where the simple lock is played: a client of another library and one of ours, with the same words for both.
//!
//! The words are fewer than those of a [party](crate::party): these libraries count no re-entry, force nothing, and
//! renew nothing by themselves.

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
pub(crate) use theirs::{Seen, TheirClient};

/// Who holds the lock, and who wants it.
pub(crate) struct Stage {
    pub(crate) holder: Side,
    pub(crate) other: Side,
    pub(crate) world: Arc<World>,
}

/// Somebody who locks.
pub(crate) enum Side {
    Ours(OurClient),
    Theirs(TheirClient),
}

/// For how long a lock is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lease {
    /// Ends by itself.
    Fixed(Duration),
    /// Ours is renewed; the others' is a lease like any, for them to extend.
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

    /// Both go home.
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

    /// Waits for the lock without end.
    pub(crate) async fn lock(&mut self, name: &str, lease: Lease) -> Outcome<Span> {
        match self {
            Self::Ours(client) => client.lock(name, lease).await,
            Self::Theirs(client) => client.lock(name, Some(lease.time())).await,
        }
    }

    /// Waits for at most `wait`; zero asks once.
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

    /// Makes a lease last this long from now; says why not if it is not this side's any more.
    pub(crate) async fn extend(&self, name: &str, lease: Duration) -> Outcome<Option<String>> {
        match self {
            Self::Ours(client) => client.extend(name, lease).await,
            Self::Theirs(client) => client.extend(name, lease).await,
        }
    }

    /// What stands in the key while this side holds the lock.
    pub(crate) fn value(&self, name: &str) -> Outcome<String> {
        match self {
            Self::Ours(client) => client.value(name),
            Self::Theirs(client) => client.value(name),
        }
    }

    /// Whether this side holds the lock, by its own account.
    pub(crate) async fn is_held(&self, name: &str) -> Outcome<bool> {
        match self {
            Self::Ours(client) => Ok(client.is_held(name)),
            Self::Theirs(client) => client.is_held(name).await,
        }
    }

    /// How long before the end of a lease this side may give it back by itself: a guard of ours is lost
    /// while the store's lease has an allowance for drifting clocks left, 1 % and 2 ms.
    pub(crate) fn gives_up_early(&self, lease: Duration) -> Duration {
        match self {
            Self::Ours(_) => lease / 100 + Duration::from_millis(2),
            Self::Theirs(_) => Duration::ZERO,
        }
    }

    /// Asks once and must be told that somebody else has it.
    pub(crate) async fn is_kept_out(&mut self, name: &str) -> Outcome {
        let (granted, _) = self.try_lock(name, Duration::ZERO, MINUTES).await?;
        ensure!(!granted, "{} got `{name}` while it is held", self.title());
        Ok(())
    }

    /// Takes the lock and gives it back: it must be free.
    pub(crate) async fn finds_it_free(&mut self, name: &str) -> Outcome {
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

/// A lease nobody in a scenario lives to see the end of.
pub(crate) const MINUTES: Lease = Lease::Fixed(Duration::from_secs(600));
