//! The runner: plays every scenario against every peer it is for and both ways round, several at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use crate::clock::Stamp;
use crate::failure::{Failure, Outcome};
use crate::library::{Build, Shared};
use crate::quorum;
use crate::scenarios::{Play, Scenario};
use crate::simple;
use crate::site::Mode;
use crate::stage::{Direction, Fleet, Stage};
use crate::table::{Row, Table};
use crate::world::{CLEAN_WITHIN, Pace, World};

/// Plays the scenarios in several lanes, since most of them wait, and reports each result as it comes.
pub(crate) async fn run(
    world: &Arc<World>,
    scenarios: &[&'static Scenario],
    mut report: impl FnMut(&Row),
) -> Table {
    let queues = Arc::new(Queues::of(world, scenarios));
    let (sender, mut results) = mpsc::unbounded_channel();
    let mut lanes = JoinSet::new();
    for lane in LANES {
        lanes.spawn(follow(lane, world.clone(), queues.clone(), sender.clone()));
    }
    drop(sender);
    let mut rows = Vec::new();
    while let Some((number, row)) = results.recv().await {
        report(&row);
        rows.push((number, row));
    }
    rows.sort_by_key(|(number, _)| *number);
    let mut table = Table::default();
    rows.into_iter().for_each(|(_, row)| table.add(row));
    while let Some(ended) = lanes.join_next().await {
        let ended = ended.map_err(Failure::from);
        if let Err(failure) = ended.and_then(|ended| ended) {
            let row = Row {
                shared: Shared::Plain,
                shows: "the peers live until they are told to end",
                against: "all".into(),
                direction: "",
                outcome: Err(failure),
                took: Duration::ZERO,
            };
            report(&row);
            table.add(row);
        }
    }
    table
}

/// A group of scenarios that share a need, so that they are played one after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Queue {
    /// Scenarios with crowds, which keep the processors busy; each peer has room for one at a time.
    Crowds,
    /// Scenarios on several servers of which one has the locks.
    Sites,
    /// Scenarios on several servers that share nothing.
    Quorum,
    Others,
}

/// The first queue of each lane. A lane has a server of its own, empties its first queue, and then helps with the others.
const LANES: [Queue; 7] = [
    Queue::Crowds,
    Queue::Sites,
    Queue::Quorum,
    Queue::Quorum,
    Queue::Others,
    Queue::Others,
    Queue::Others,
];

/// The jobs still to be played, each with its row number in the table.
struct Queues([Mutex<VecDeque<Job>>; 4]);

type Job = (usize, &'static Scenario, Part);

impl Queues {
    fn of(world: &World, scenarios: &[&'static Scenario]) -> Self {
        let queues = Self(Default::default());
        let parts = scenarios.iter().flat_map(|scenario| {
            parts(&world.builds, scenario, world.pace)
                .into_iter()
                .map(|part| (*scenario, part))
        });
        for (number, (scenario, part)) in parts.enumerate() {
            queues
                .get(Queue::of(scenario))
                .push_back((number, scenario, part));
        }
        queues
    }

    fn get(&self, queue: Queue) -> MutexGuard<'_, VecDeque<Job>> {
        let queue = &self.0[queue as usize];
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, queue: Queue) -> Option<Job> {
        let first = self.get(queue).pop_front();
        first.or_else(|| self.get(Queue::Others).pop_front())
    }
}

impl Queue {
    fn of(scenario: &Scenario) -> Self {
        match &scenario.play {
            Play::Crowd(..)
            | Play::Fleet(..)
            | Play::Long(..)
            | Play::SimpleFleet(_)
            | Play::QuorumFleet(_)
            | Play::Together(_) => Self::Crowds,
            Play::Pair(terms, _) if terms.mode != Mode::Single => Self::Sites,
            Play::Quorum(..) => Self::Quorum,
            Play::Pair(..) | Play::Simple(..) => Self::Others,
        }
    }
}

/// Plays the jobs of a lane.
async fn follow(
    queue: Queue,
    world: Arc<World>,
    queues: Arc<Queues>,
    results: mpsc::UnboundedSender<(usize, Row)>,
) -> Outcome {
    let new_world = || {
        let new = || match queue {
            // The peers of this lane are for crowds alone.
            Queue::Crowds => world.apart(),
            Queue::Sites | Queue::Quorum | Queue::Others => world.beside(),
        };
        Arc::new(tokio::task::block_in_place(new))
    };
    let mut here = new_world();
    if queues
        .get(queue)
        .iter()
        .any(|(_, scenario, _)| has_several(scenario))
    {
        // Start the servers now, so that their uptime suffices when they are needed.
        tokio::task::block_in_place(|| {
            here.servers();
        });
    }
    while let Some((number, scenario, part)) = queues.next(queue) {
        let builds = part.builds.clone();
        let mut row = perform(&here, scenario, part).await;
        if let Err(failure) = &row.outcome {
            // Locks and waiters that the failed scenario has left there must not disturb another scenario.
            let said = here.give_up(&builds).await;
            row.outcome = Err(Failure::new(format!("{failure}{said}")));
            here = new_world();
        }
        if results.send((number, row)).is_err() {
            break;
        }
    }
    // The peers of the other lanes are shared, and still needed.
    match queue {
        Queue::Crowds => here.end().await,
        Queue::Sites | Queue::Quorum | Queue::Others => Ok(()),
    }
}

const fn has_several(scenario: &Scenario) -> bool {
    matches!(scenario.play, Play::Quorum(..) | Play::QuorumFleet(_))
}

/// Returns the table of a run in which everything passes, without times.
#[cfg(test)]
fn expected(builds: &[Build]) -> Table {
    let mut table = Table::default();
    for scenario in crate::scenarios::all() {
        for part in parts(builds, scenario, THOROUGH) {
            table.add(Row {
                shared: part.shared,
                shows: scenario.shows,
                against: part.against(),
                direction: part.title(),
                outcome: Ok(String::new()),
                took: Duration::ZERO,
            });
        }
    }
    table
}

/// The pace that the documentation shows.
#[cfg(test)]
const THOROUGH: Pace = Pace {
    quick: false,
    hammer: Duration::from_secs(10),
};

/// One play of a scenario: against which builds, and which way round.
#[derive(Clone)]
struct Part {
    shared: Shared,
    /// The builds, each with one process.
    builds: Vec<Build>,
    direction: Option<Direction>,
}

impl Part {
    /// Returns the builds for the table. All are of one library, so their versions tell them apart.
    fn against(&self) -> String {
        let mut builds = self.builds.iter().collect::<Vec<_>>();
        builds.dedup();
        let versions: Vec<&str> = builds.iter().map(|build| &*build.version).collect();
        format!("{} {}", builds[0].library.title(), versions.join(" + "))
    }

    fn title(&self) -> &'static str {
        self.direction
            .map_or("everybody", |direction| direction.title(self.shared))
    }
}

fn parts(builds: &[Build], scenario: &Scenario, pace: Pace) -> Vec<Part> {
    let shared = scenario.play.shared().into_iter();
    shared
        .flat_map(|shared| parts_with(builds, scenario, shared, pace))
        .collect()
}

fn parts_with(builds: &[Build], scenario: &Scenario, shared: Shared, pace: Pace) -> Vec<Part> {
    let since = match scenario.play {
        Play::Pair(terms, _) | Play::Crowd(terms, _) => terms.since,
        _ => [0, 0],
    };
    let builds = builds
        .iter()
        .filter(|build| build.has(shared) && build.release() >= since);
    let builds: Vec<Build> = builds.cloned().collect();
    let part = |builds: &[Build], direction| Part {
        shared,
        builds: builds.to_vec(),
        direction,
    };
    match scenario.play {
        Play::Pair(..) | Play::Crowd(..) | Play::Simple(..) | Play::Quorum(..) => {
            let builds = match scenario.play {
                // A scenario on several servers is played with the newest version alone: it takes long.
                Play::Pair(terms, _) if terms.mode != Mode::Single => &builds[..1],
                _ => &*builds,
            };
            let each = builds.iter().flat_map(|build| {
                Direction::BOTH.map(|direction| part(std::slice::from_ref(build), Some(direction)))
            });
            each.collect()
        }
        Play::Fleet(..) | Play::Long(..) => {
            let twice = builds.iter();
            let twice = twice.map(|build| part(&[build.clone(), build.clone()], None));
            let mixed = (builds.len() > 1).then(|| part(&builds, None));
            match mixed {
                // A quick run plays only the fleet with all versions.
                Some(mixed) if pace.quick => vec![mixed],
                mixed => twice.chain(mixed).collect(),
            }
        }
        Play::SimpleFleet(_) | Play::QuorumFleet(_) => {
            let each = builds.iter();
            each.map(|build| part(std::slice::from_ref(build), None))
                .collect()
        }
        Play::Together(_) => vec![part(&builds, None)],
    }
}

async fn perform(world: &Arc<World>, scenario: &'static Scenario, part: Part) -> Row {
    let began = Stamp::now();
    // A panic in the fixture is a failure of this scenario, not of the run.
    let playing = tokio::spawn(play(world.clone(), scenario, part.clone()));
    let outcome = finish(playing, limit(world, scenario)).await;
    Row {
        shared: part.shared,
        shows: scenario.shows,
        against: part.against(),
        direction: part.title(),
        outcome,
        took: Stamp::now().since(began),
    }
}

async fn play(world: Arc<World>, scenario: &Scenario, part: Part) -> Outcome<String> {
    match (&scenario.play, part.direction) {
        (Play::Pair(terms, play) | Play::Crowd(terms, play), Some(direction)) => {
            let mut stage = Stage::set(&world, &part.builds[0], direction, *terms).await?;
            let remark = play(&mut stage).await?;
            let world = stage.world.clone();
            world.forget_tokens()?;
            // The check runs while all clients are still connected.
            world.is_clean().await?;
            stage.close().await?;
            Ok(remark)
        }
        (Play::Simple(scripts, play), Some(direction)) => {
            let build = &part.builds[0];
            let mut stage = simple::Stage::set(&world, build, direction, *scripts).await?;
            let remark = play(&mut stage).await?;
            world.is_clean().await?;
            stage.close().await?;
            Ok(remark)
        }
        (Play::Quorum(terms, play), Some(direction)) => {
            let build = &part.builds[0];
            let set = quorum::Stage::set(&world, build, part.shared, direction, *terms);
            let mut stage = set.await?;
            let remark = play(&mut stage).await?;
            let servers = world.servers().first(terms.servers);
            quorum::nothing_is_left(servers, terms.lease + CLEAN_WITHIN).await?;
            stage.close().await?;
            Ok(remark)
        }
        (
            Play::Fleet(_, play)
            | Play::Long(_, play)
            | Play::QuorumFleet(play)
            | Play::SimpleFleet(play)
            | Play::Together(play),
            _,
        ) => {
            let mut peers = Vec::new();
            for (number, build) in part.builds.iter().enumerate() {
                let second = part.builds[..number].contains(build);
                peers.push(if second {
                    world.fresh_peer(build).await?
                } else {
                    world.peer(build).await?
                });
            }
            let mut fleet = Fleet {
                peers,
                shared: part.shared,
                world: world.clone(),
            };
            let remark = play(&mut fleet).await?;
            world.forget_tokens()?;
            world.is_clean().await?;
            Ok(remark)
        }
        (Play::Pair(..) | Play::Crowd(..) | Play::Simple(..) | Play::Quorum(..), None) => {
            Err(Failure::new("a pair has a direction"))
        }
    }
}

async fn finish(mut playing: JoinHandle<Outcome<String>>, limit: Duration) -> Outcome<String> {
    let Ok(done) = tokio::time::timeout(limit, &mut playing).await else {
        playing.abort();
        return Err(Failure::new(format!(
            "not over after {limit:?}: somebody hangs"
        )));
    };
    done.unwrap_or_else(|error| {
        let panic = error.into_panic();
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Failure::new(said.unwrap_or("it panicked")))
    })
}

fn limit(world: &World, scenario: &Scenario) -> Duration {
    LONGEST
        + match scenario.play {
            Play::Fleet(..) | Play::SimpleFleet(_) | Play::QuorumFleet(_) => world.pace.hammer * 2,
            Play::Long(..) => HOURS,
            Play::Pair(..)
            | Play::Crowd(..)
            | Play::Simple(..)
            | Play::Quorum(..)
            | Play::Together(_) => Duration::ZERO,
        }
}

/// Upper bound for a scenario, and shorter than the [leases](crate::scenarios) that must not expire in one: a waiter that is not woken
/// fails.
const LONGEST: Duration = Duration::from_secs(300);
const HOURS: Duration = Duration::from_secs(3 * 3600);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::table::Times;

    /// Returns the peers that `scripts/interop` plays with; Redisson's versions come from that script.
    fn builds() -> Vec<Build> {
        let script = include_str!("../../scripts/interop");
        let line = script
            .lines()
            .find_map(|line| line.strip_prefix("versions=("));
        let line = line.expect("a line that lists them");
        let words = line.trim_end_matches(')').split_whitespace();
        let folder = Path::new("peers");
        let builds = words.map(|version| Build::redisson(folder, version));
        builds.chain(Build::of_simple_locks(folder)).collect()
    }

    #[test]
    fn the_documented_tables_are_those_of_a_run_without_failures() {
        let expected = expected(&builds());
        let redissons = (
            "docs/redisson-wire.md",
            include_str!("../../docs/redisson-wire.md"),
        );
        let simple = (
            "docs/simple-lock.md",
            include_str!("../../docs/simple-lock.md"),
        );
        for shared in Shared::ALL {
            let (file, page) = match shared {
                Shared::Simple | Shared::SimpleQuorum => simple,
                _ => redissons,
            };
            let table = expected.markdown(shared, Times::Hide);
            assert!(
                page.contains(&table),
                "{file} has to show what `scripts/interop --table` prints:\n{table}"
            );
        }
    }
}
