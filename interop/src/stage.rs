//! The stage of a scenario: two parties and the world they share.

use std::sync::Arc;
use std::time::Duration;

use crate::failure::Outcome;
use crate::library::{Build, Shared};
use crate::party::{Connection, JavaThread, Kind, OurTask, Party};
use crate::peer::Peer;
use crate::site::Mode;
use crate::support::RedisServer;
use crate::world::World;

/// The party that holds the lock, and the party that wants it.
pub(crate) struct Stage {
    pub(crate) holder: Party,
    pub(crate) other: Party,
    pub(crate) world: Arc<World>,
    pub(crate) build: Build,
    pub(crate) terms: Settings,
}

/// Which way round a scenario is played.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    TheyHold,
    WeHold,
}

/// The settings of the clients of both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) kind: Kind,
    /// Redisson's `lockWatchdogTimeout`, and our keep-alive lease.
    pub(crate) watchdog: Duration,
    /// Redisson's `NameMapper`, and our `key_prefix`.
    pub(crate) prefix: &'static str,
    /// Redisson's `fairLockWaitTimeout`, in versions that have it.
    pub(crate) fair_wait: Duration,
    /// How the servers work together.
    pub(crate) mode: Mode,
    /// The first version of Redisson that can play the scenario: the first two numbers.
    pub(crate) since: [u32; 2],
}

impl Settings {
    /// The defaults of both sides.
    pub(crate) const DEFAULT: Self = Self {
        kind: Kind::Plain,
        watchdog: Duration::from_secs(30),
        prefix: "",
        fair_wait: Duration::from_secs(300),
        mode: Mode::Single,
        since: [0, 0],
    };
}

/// The participants of a fleet, all at the same time: some peers, and distlock.
pub(crate) struct Fleet {
    pub(crate) peers: Vec<Arc<Peer>>,
    /// The lock that all of them know.
    pub(crate) shared: Shared,
    pub(crate) world: Arc<World>,
}

impl Fleet {
    /// Returns the servers of the lock: one, or a majority of several.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        match self.shared {
            Shared::Quorum | Shared::SimpleQuorum => self.world.servers().first(3),
            _ => std::slice::from_ref(self.world.server()),
        }
    }
}

impl Stage {
    pub(crate) async fn set(
        world: &Arc<World>,
        build: &Build,
        direction: Direction,
        terms: Settings,
    ) -> Outcome<Self> {
        let world = &world.of(terms.mode);
        let jvm = world.peer(build).await?;
        let java = Party::java(world, &jvm, terms).await?;
        let ours = Party::ours(world, terms).await?;
        let (holder, other) = match direction {
            Direction::TheyHold => (java, ours),
            Direction::WeHold => (ours, java),
        };
        Ok(Self {
            holder,
            other,
            world: world.clone(),
            build: build.clone(),
            terms,
        })
    }

    /// Makes Java's side lock for this thread id from now on.
    pub(crate) async fn java_acts_as(&mut self, thread_id: i64) -> Outcome {
        for party in [&mut self.holder, &mut self.other] {
            if let Party::Java(thread) = party {
                thread.act_as(thread_id).await?;
            }
        }
        Ok(())
    }

    /// Closes the parties.
    pub(crate) async fn close(mut self) -> Outcome {
        self.holder.close().await?;
        self.other.close().await
    }
}

impl Party {
    /// Starts a new thread of a JVM, with a client of its own.
    pub(crate) async fn java(world: &World, jvm: &Arc<Peer>, terms: Settings) -> Outcome<Self> {
        Ok(Self::Java(java_thread(world, jvm, terms).await?))
    }

    /// Starts a new task of ours, with a client of its own.
    pub(crate) async fn ours(world: &World, terms: Settings) -> Outcome<Self> {
        let url = world.site().url();
        let task = OurTask::connect(&url, terms).await?;
        Ok(Self::Ours(task))
    }
}

pub(crate) async fn java_thread(
    world: &World,
    jvm: &Arc<Peer>,
    terms: Settings,
) -> Outcome<JavaThread> {
    let connection = Connection {
        kind: terms.kind,
        place: world.site().for_java(),
        watchdog: terms.watchdog,
        prefix: terms.prefix,
        fair_wait: terms.fair_wait,
    };
    JavaThread::connect(jvm, &connection).await
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::TheyHold, Self::WeHold];

    pub(crate) const fn title(self, shared: Shared) -> &'static str {
        match self {
            Self::TheyHold => shared.they_hold(),
            Self::WeHold => shared.we_hold(),
        }
    }
}
