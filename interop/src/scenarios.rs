//! The scenarios. A new primitive adds its own module, and its lines in the [`list`].

mod counting;
mod deaths;
mod exclusion;
mod failover;
mod fair_lock;
mod fenced_lock;
mod latch;
mod leases;
mod leftovers;
mod list;
mod multi_lock;
mod names;
mod owners;
mod quorum_lock;
mod read_write;
mod reentry;
mod refusals;
pub(crate) mod semaphore;
mod simple_lock;
mod terms;
mod together;
mod turns;
mod waiting;

use std::pin::Pin;
use std::time::Duration;

pub(crate) use self::list::{LONG_FORMS, all};
use crate::failure::{Outcome, ensure};
use crate::library::Shared;
use crate::quorum;
use crate::simple::{self, Scripts};
use crate::stage::{Fleet, Settings, Stage};

/// A property that both sides of a lock have to provide.
pub(crate) struct Scenario {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// The description for the table.
    pub(crate) shows: &'static str,
    pub(crate) play: Play,
}

/// How a scenario is played, and the parties that take part.
pub(crate) enum Play {
    /// Java and distlock, both ways round, with each version that has the lock.
    Pair(Settings, for<'a> fn(&'a mut Stage) -> Playing<'a>),
    /// Java and distlock as in `Pair`, where one side is a crowd.
    Crowd(Settings, for<'a> fn(&'a mut Stage) -> Playing<'a>),
    /// Two JVMs of each version that has the lock and distlock, and then one of each version and distlock.
    Fleet(Shared, for<'a> fn(&'a mut Fleet) -> Playing<'a>),
    /// The same as `Fleet`, without a time limit.
    Long(Shared, for<'a> fn(&'a mut Fleet) -> Playing<'a>),
    /// All versions and distlock, once.
    Together(for<'a> fn(&'a mut Fleet) -> Playing<'a>),
    /// Each of the other libraries and distlock, both ways round.
    Simple(Scripts, for<'a> fn(&'a mut simple::Stage) -> Playing<'a>),
    /// A process of each of the other libraries and distlock.
    SimpleFleet(for<'a> fn(&'a mut Fleet) -> Playing<'a>),
    /// Each library that has one lock on a majority of several servers and distlock, both ways round.
    Quorum(
        quorum::Settings,
        for<'a> fn(&'a mut quorum::Stage) -> Playing<'a>,
    ),
    /// A process of each of the libraries of `Quorum` and distlock.
    QuorumFleet(for<'a> fn(&'a mut Fleet) -> Playing<'a>),
}

impl Play {
    /// Returns the lock or locks that the scenario is about.
    pub(crate) fn shared(&self) -> Vec<Shared> {
        match self {
            Self::Pair(terms, _) | Self::Crowd(terms, _) => vec![terms.kind.shared()],
            Self::Fleet(shared, _) | Self::Long(shared, _) => vec![*shared],
            Self::Together(_) => vec![Shared::Plain],
            Self::Simple(..) | Self::SimpleFleet(_) => vec![Shared::Simple],
            Self::Quorum(..) | Self::QuorumFleet(_) => vec![Shared::Quorum, Shared::SimpleQuorum],
        }
    }
}

/// A scenario being played; it returns a remark for the table.
pub(crate) type Playing<'a> = Pin<Box<dyn Future<Output = Outcome<String>> + Send + 'a>>;

/// A lease that outlasts every scenario: a waiter for it that is not woken waits for longer than a scenario may take.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A short wait, but long enough for Redisson to subscribe in: 4.7.0 stays subscribed if its wait ends just then, until it waits for the
/// same lock again.
const BRIEF: Duration = Duration::from_millis(400);

/// The rounding of times: Redis counts whole milliseconds, on a clock of its own; so does Java while it waits.
const ROUNDING: Duration = Duration::from_millis(5);

/// How soon waiters acquired a released lock.
///
/// A waiter of ours polls every two seconds or more, whether or not it is notified. So each hand-over is repeated until one was faster than
/// that: where no message arrives, none is.
#[derive(Default)]
struct Wakes {
    played: u32,
    fastest: Option<Duration>,
    slowest: Duration,
}

impl Wakes {
    /// Reports whether another round is to be played, of at least `rounds`. The first does not count: Java compiles meanwhile.
    fn another(&self, rounds: u32) -> Outcome<bool> {
        let is_told = self.fastest.is_some_and(|fastest| fastest < POLLED);
        ensure!(
            is_told || self.played <= rounds + UNTOLD,
            "nobody was told: the fastest of {} rounds took {:?}",
            self.played,
            self.fastest
        );
        Ok(self.played <= rounds || !is_told)
    }

    fn add(&mut self, took: Duration) {
        if self.played > 0 {
            self.fastest = Some(self.fastest.map_or(took, |fastest| fastest.min(took)));
            self.slowest = self.slowest.max(took);
        }
        self.played += 1;
    }

    fn remark(&self) -> String {
        let slowest = self.slowest.as_secs_f64() * 1e3;
        format!("longest {slowest:.1} ms of {}", self.played - 1)
    }
}

/// A time in which no waiter of ours polls.
const POLLED: Duration = Duration::from_secs(1);
/// How many more rounds a busy machine may need.
const UNTOLD: u32 = 20;
