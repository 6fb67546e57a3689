//! Plays every scenario against every peer it is for and both ways round, one at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock::{Stamp, Wall};
use crate::failure::{Failure, Outcome};
use crate::library::{Build, Shared};
use crate::machine::{self, Watch};
use crate::quorum;
use crate::scenarios::{Play, Scenario};
use crate::simple;
use crate::site::Mode;
use crate::stage::{Direction, Fleet, Stage};
use crate::table::{Row, Table};
use crate::world::{CLEAN_WITHIN, World};

/// Plays the scenarios, and tells `report` of each result as it comes.
pub(crate) async fn run(
    world: &Arc<World>,
    scenarios: &[&'static Scenario],
    mut report: impl FnMut(&Row),
) -> Table {
    let mut table = Table::default();
    let mut note = |row: Row| {
        report(&row);
        table.add(row);
    };
    let several = |play: &Play| matches!(play, Play::Quorum(..) | Play::QuorumFleet(_));
    if scenarios.iter().any(|scenario| several(&scenario.play)) {
        // So that they are of age when they are needed.
        world.servers();
    }
    for scenario in scenarios {
        for part in parts(&world.builds, scenario) {
            let row = perform(world, scenario, part).await;
            note(row);
        }
    }
    if let Err(failure) = world.end().await {
        note(Row {
            shared: Shared::Plain,
            shows: "the peers live until they are told to end",
            against: "all".into(),
            direction: "",
            outcome: Err(failure),
            took: Duration::ZERO,
        });
    }
    table
}

/// What the table of a run in which everything passes looks like, without times.
#[cfg(test)]
pub(crate) fn expected(builds: &[Build]) -> Table {
    let mut table = Table::default();
    for scenario in crate::scenarios::all() {
        for part in parts(builds, scenario) {
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

/// One line of the table: against whom, and which way round.
#[derive(Clone)]
struct Part {
    shared: Shared,
    /// One process for each.
    builds: Vec<Build>,
    direction: Option<Direction>,
}

impl Part {
    /// All of one library, so its versions tell them apart.
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

fn parts(builds: &[Build], scenario: &Scenario) -> Vec<Part> {
    let shared = scenario.play.shared().into_iter();
    shared
        .flat_map(|shared| parts_with(builds, scenario, shared))
        .collect()
}

fn parts_with(builds: &[Build], scenario: &Scenario, shared: Shared) -> Vec<Part> {
    let since = match scenario.play {
        Play::Pair(terms, _) => terms.since,
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
        Play::Pair(..) | Play::Simple(..) | Play::Quorum(..) => {
            let builds = match scenario.play {
                // Of several servers it is the newest alone: they take their time.
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
            twice.chain(mixed).collect()
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
    let mut tries = Tries::default();
    let outcome = loop {
        let (wall, watch) = (Wall::now(), Watch::start());
        // A panic in the fixture is a failure of this scenario, not of the run.
        let playing = tokio::spawn(play(world.clone(), scenario, part.clone()));
        match finish(playing, limit(world, scenario)).await {
            Ok(remark) => break Ok(tries.passed(remark)),
            Err(failure) => {
                // In hours somebody may have set it, whatever else is wrong.
                let brief = !matches!(scenario.play, Play::Long(..));
                let failure = failure.excused_if(brief && wall.was_set());
                let taken = watch.end().await;
                let failure = match &taken {
                    Some(seen) => failure.during(seen).excused_if(has_short_leases(scenario)),
                    None => failure,
                };
                let said = world.sweep().await;
                if let Some(failure) = tries.failed(failure) {
                    break Err(Failure::new(format!("{failure}{said}")));
                }
                if taken.is_some() {
                    machine::calm().await;
                }
            }
        }
    };
    Row {
        shared: part.shared,
        shows: scenario.shows,
        against: part.against(),
        direction: part.title(),
        outcome,
        took: Stamp::now().since(began),
    }
}

/// Whether it goes by leases of a few seconds, which a machine that is taken from us for a moment makes nonsense of. Where they are
/// longer, or many take turns and everybody is judged by what it believed at the time, nothing of the kind excuses anybody.
const fn has_short_leases(scenario: &Scenario) -> bool {
    let lease = match &scenario.play {
        Play::Pair(terms, _) => terms.watchdog,
        Play::Quorum(terms, _) => terms.lease,
        // Each as it likes, and most are short.
        Play::Simple(..) => return true,
        Play::Fleet(..)
        | Play::Long(..)
        | Play::Together(_)
        | Play::SimpleFleet(_)
        | Play::QuorumFleet(_) => return false,
    };
    lease.as_secs() < 30
}

/// A machine that stands still for a moment makes somebody late, but not five times running; who is late
/// because a message is missing is late every time. What is wrong is wrong at once, unless leases are short and the machine was
/// seen to be taken from us meanwhile, or its clock was set.
#[derive(Default)]
struct Tries {
    late: Vec<String>,
}

impl Tries {
    const MOST: usize = 5;

    fn passed(&self, remark: String) -> String {
        match &*self.late {
            [] => remark,
            late => format!(
                "{remark}; try {}, before: {}",
                late.len() + 1,
                late.join("; ")
            ),
        }
    }

    /// The failure, unless it is worth another try.
    fn failed(&mut self, failure: Failure) -> Option<Failure> {
        if !failure.is_late() {
            return Some(failure);
        }
        self.late.push(failure.to_string());
        let last = self.late.len() == Self::MOST;
        last.then(|| failure.during(format_args!("late {} times", Self::MOST)))
    }
}

async fn play(world: Arc<World>, scenario: &Scenario, part: Part) -> Outcome<String> {
    match (&scenario.play, part.direction) {
        (Play::Pair(terms, play), Some(direction)) => {
            let mut stage = Stage::set(&world, &part.builds[0], direction, *terms).await?;
            let played = play(&mut stage).await;
            let world = stage.world.clone();
            let remark = played.map_err(|failure| failure.excused_if(world.site().has_moved()))?;
            world.forget_tokens()?;
            // While all are still connected.
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
        (Play::Pair(..) | Play::Simple(..) | Play::Quorum(..), None) => {
            Err(Failure::new("a pair has a direction"))
        }
    }
}

async fn finish(mut playing: JoinHandle<Outcome<String>>, limit: Duration) -> Outcome<String> {
    let Ok(done) = tokio::time::timeout(limit, &mut playing).await else {
        playing.abort();
        return Err(Failure::certain(format!(
            "not over after {limit:?}: somebody hangs"
        )));
    };
    done.unwrap_or_else(|error| {
        let panic = error.into_panic();
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Failure::certain(said.unwrap_or("it panicked")))
    })
}

fn limit(world: &World, scenario: &Scenario) -> Duration {
    LONGEST
        + match scenario.play {
            Play::Fleet(..) | Play::SimpleFleet(_) | Play::QuorumFleet(_) => world.pace.hammer * 2,
            Play::Long(..) => HOURS,
            Play::Pair(..) | Play::Simple(..) | Play::Quorum(..) | Play::Together(_) => {
                Duration::ZERO
            }
        }
}

/// Far longer than any scenario takes, far shorter than anybody's patience.
const LONGEST: Duration = Duration::from_secs(180);
const HOURS: Duration = Duration::from_secs(3 * 3600);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::table::Times;

    #[test]
    fn who_is_late_once_is_tried_again_and_the_remark_says_so() {
        let mut tries = Tries::default();
        assert!(tries.failed(Failure::late("300 ms")).is_none());
        assert_eq!(tries.passed("fine".into()), "fine; try 2, before: 300 ms");
    }

    #[test]
    fn who_is_late_every_time_has_failed() {
        let mut tries = Tries::default();
        for _ in 1..Tries::MOST {
            assert!(tries.failed(Failure::late("300 ms")).is_none());
        }
        let failure = tries.failed(Failure::late("301 ms")).expect("enough");
        assert_eq!(failure.to_string(), "late 5 times: 301 ms");
    }

    #[test]
    fn what_is_wrong_is_not_tried_again() {
        let mut tries = Tries::default();
        let failure = Failure::new("both held it").during("names");
        assert!(tries.failed(failure).is_some());
        assert!(tries.failed(Failure::late("x").during("y")).is_none());
        let explained = Failure::new("it was gone").excused_if(true);
        assert!(tries.failed(explained).is_none());
    }

    #[test]
    fn no_machine_excuses_one_that_hangs() {
        let hangs = Failure::certain("somebody hangs").excused_if(true);
        assert!(Tries::default().failed(hangs).is_some());
    }

    /// The peers `scripts/interop` plays with; Redisson's versions in its own words.
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
    fn the_tables_in_the_documentation_are_those_of_a_run_in_which_everything_passes() {
        let expected = expected(&builds());
        let redissons = ("docs/redisson.md", include_str!("../../docs/redisson.md"));
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
