//! The stage for one lock on a majority of several servers: a client of another library and one of ours, with the same operations for both.

mod ours;
mod servers;
mod theirs;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Span, Stamp};
use crate::failure::{Outcome, ensure};
use crate::library::{Build, Shared};
use crate::party::Unlocked;
use crate::simple::Lease;
use crate::stage::Direction;
use crate::support::RedisServer;
use crate::world::World;
pub(crate) use ours::{Format, OurVoter, clients};
pub(crate) use servers::{Servers, UnavailableServer, nothing_is_left};
pub(crate) use theirs::{TheirVoter, addresses};

/// The side that holds the lock, and the side that wants it.
pub(crate) struct Stage {
    pub(crate) holder: Side,
    pub(crate) other: Side,
    pub(crate) world: Arc<World>,
    pub(crate) build: Build,
    pub(crate) shared: Shared,
    pub(crate) terms: Settings,
}

/// One side of a lock on a majority.
pub(crate) enum Side {
    Ours(OurVoter),
    Theirs(TheirVoter),
}

/// The number of servers, and the leases and timeouts of both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) servers: usize,
    /// Our lease, and Redisson's `lockWatchdogTimeout`. A server has a twentieth of it to reply to us.
    pub(crate) lease: Duration,
    /// How long the other side waits for a server that does not reply.
    pub(crate) patience: Duration,
}

impl Stage {
    pub(crate) async fn set(
        world: &Arc<World>,
        build: &Build,
        shared: Shared,
        direction: Direction,
        terms: Settings,
    ) -> Outcome<Self> {
        let peer = world.peer(build).await?;
        let servers = world.servers();
        servers.come_of_age(terms.lease).await;
        let servers = servers.first(terms.servers);
        let theirs = TheirVoter::connect(&peer, servers, terms).await?;
        let ours = OurVoter::connect(servers.iter().map(RedisServer::url), shared);
        let (theirs, ours) = (Side::Theirs(theirs), Side::Ours(ours.await?));
        let (holder, other) = match direction {
            Direction::TheyHold => (theirs, ours),
            Direction::WeHold => (ours, theirs),
        };
        Ok(Self {
            holder,
            other,
            world: world.clone(),
            build: build.clone(),
            shared,
            terms,
        })
    }

    /// Closes both sides.
    pub(crate) async fn close(mut self) -> Outcome {
        self.holder.close().await?;
        self.other.close().await
    }
}

impl Side {
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Ours(_) => "we".into(),
            Self::Theirs(voter) => voter.title(),
        }
    }

    /// Returns the leases with which this side holds a lock until it is released. A lease that is not renewed has to last for a scenario.
    pub(crate) fn leases(&self, lease: Duration) -> Vec<Lease> {
        match self {
            Self::Ours(_) => vec![Lease::Kept(lease), Lease::Fixed(lease)],
            Self::Theirs(voter) if voter.has_watchdog() => {
                vec![Lease::Kept(lease), Lease::Fixed(WHOLE_SCENE)]
            }
            Self::Theirs(_) => vec![Lease::Fixed(WHOLE_SCENE)],
        }
    }

    /// Returns the first of the leases.
    pub(crate) fn lease(&self, lease: Duration) -> Lease {
        self.leases(lease)[0]
    }

    /// Waits for the lock without a timeout.
    pub(crate) async fn lock(&mut self, name: &str, lease: Lease) -> Outcome<Span> {
        match self {
            Self::Ours(voter) => voter.lock(name, lease).await,
            Self::Theirs(voter) => voter.lock(name, lease).await,
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
            Self::Ours(voter) => voter.try_lock(name, wait, lease).await,
            Self::Theirs(voter) => voter.try_lock(name, wait, lease).await,
        }
    }

    pub(crate) async fn unlock(&mut self, name: &str) -> Outcome<Unlocked> {
        match self {
            Self::Ours(voter) => voter.unlock(name).await,
            Self::Theirs(voter) => voter.unlock(name).await,
        }
    }

    /// Tries to acquire the lock once and must be told that another side holds it.
    pub(crate) async fn is_excluded(&mut self, name: &str, lease: Duration) -> Outcome {
        self.is_kept_out_for(name, Duration::ZERO, lease).await
    }

    /// Waits for the lock for at most `wait` and must be told that another side holds it.
    pub(crate) async fn is_kept_out_for(
        &mut self,
        name: &str,
        wait: Duration,
        lease: Duration,
    ) -> Outcome {
        let lease = Lease::Kept(lease);
        let wait = match self {
            // A Redisson client shares its wait among the servers, and each part has to be long enough to subscribe in.
            Self::Theirs(voter) if voter.has_watchdog() => wait * voter.servers(),
            _ => wait,
        };
        let (granted, span) = self.try_lock(name, wait, lease).await?;
        let (who, took) = (self.title(), span.took());
        ensure!(!granted, "{who} got `{name}` while it is held, in {took:?}");
        Ok(())
    }

    /// Acquires the lock and releases it: it must be free, or soon be. A client that a majority of servers refused did not wait for the
    /// replies of the others, and votes that these may have granted are released in the background.
    pub(crate) async fn finds_lock_free(&mut self, name: &str, lease: Duration) -> Outcome {
        let kept = Lease::Kept(lease);
        let give_up = Stamp::now() + FREE_WITHIN;
        while !self.try_lock(name, Duration::ZERO, kept).await?.0 {
            let who = self.title();
            ensure!(
                Stamp::now() < give_up,
                "{who} did not get `{name}` though it is free"
            );
            tokio::time::sleep(A_MOMENT).await;
        }
        self.unlock(name).await?.done()?;
        Ok(())
    }

    async fn close(&mut self) -> Outcome {
        match self {
            Self::Ours(voter) => voter.close().await,
            Self::Theirs(voter) => voter.close().await,
        }
    }
}

/// Upper bound for a scenario: no side holds the lock for longer.
const WHOLE_SCENE: Duration = Duration::from_secs(600);
/// Upper bound for a busy machine to release the votes that too few servers granted.
const FREE_WITHIN: Duration = Duration::from_secs(120);
const A_MOMENT: Duration = Duration::from_millis(20);
