//! Where one lock on most of several servers is played: somebody of another library and one of ours, with the same words
//! for both.

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
pub(crate) use servers::{Away, Servers, nothing_is_left};
pub(crate) use theirs::{TheirVoter, addresses};

/// Who holds the lock, and who wants it.
pub(crate) struct Stage {
    pub(crate) holder: Side,
    pub(crate) other: Side,
    pub(crate) world: Arc<World>,
    pub(crate) build: Build,
    pub(crate) shared: Shared,
    pub(crate) terms: Terms,
}

/// Somebody who locks.
pub(crate) enum Side {
    Ours(OurVoter),
    Theirs(TheirVoter),
}

/// On how many servers, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) servers: usize,
    /// Of ours, and Redisson's `lockWatchdogTimeout`. A server has a twentieth of it to answer us.
    pub(crate) lease: Duration,
    /// Theirs with a server that does not answer.
    pub(crate) patience: Duration,
}

impl Stage {
    pub(crate) async fn set(
        world: &Arc<World>,
        build: &Build,
        shared: Shared,
        direction: Direction,
        terms: Terms,
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

    /// Both go home.
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

    /// The ways to hold it until it is given back. What nobody renews has to last for a scenario.
    pub(crate) fn leases(&self, lease: Duration) -> Vec<Lease> {
        match self {
            Self::Ours(_) => vec![Lease::Kept(lease), Lease::Fixed(lease)],
            Self::Theirs(voter) if voter.has_watchdog() => {
                vec![Lease::Kept(lease), Lease::Fixed(WHOLE_SCENE)]
            }
            Self::Theirs(_) => vec![Lease::Fixed(WHOLE_SCENE)],
        }
    }

    /// The first of them.
    pub(crate) fn lease(&self, lease: Duration) -> Lease {
        self.leases(lease)[0]
    }

    /// Waits for the lock without end.
    pub(crate) async fn lock(&mut self, name: &str, lease: Lease) -> Outcome<Span> {
        match self {
            Self::Ours(voter) => voter.lock(name, lease).await,
            Self::Theirs(voter) => voter.lock(name, lease).await,
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

    /// Asks once and must be told that somebody else has it.
    pub(crate) async fn is_kept_out(&mut self, name: &str, lease: Duration) -> Outcome {
        self.is_kept_out_for(name, Duration::ZERO, lease).await
    }

    /// The same for somebody who waits.
    pub(crate) async fn is_kept_out_for(
        &mut self,
        name: &str,
        wait: Duration,
        lease: Duration,
    ) -> Outcome {
        let lease = Lease::Kept(lease);
        let wait = match self {
            // It shares its wait among the servers, and each part has to be long enough to subscribe in.
            Self::Theirs(voter) if voter.has_watchdog() => wait * voter.servers(),
            _ => wait,
        };
        let (granted, span) = self.try_lock(name, wait, lease).await?;
        let (who, took) = (self.title(), span.took());
        ensure!(!granted, "{who} got `{name}` while it is held, in {took:?}");
        Ok(())
    }

    /// Takes the lock and gives it back: it must be free, or soon be. Whoever was kept out by most servers did not wait for
    /// what the others say, and what these may have granted is taken back in the background.
    pub(crate) async fn finds_it_free(&mut self, name: &str, lease: Duration) -> Outcome {
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

/// Longer than anybody holds it in a scenario.
const WHOLE_SCENE: Duration = Duration::from_secs(600);
/// Far longer than a busy machine takes to release what was granted by too few servers.
const FREE_WITHIN: Duration = Duration::from_secs(120);
const A_MOMENT: Duration = Duration::from_millis(20);
