//! Plays every scenario against every version and both ways round, one at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock::Stamp;
use crate::failure::{Failure, Outcome};
use crate::scenarios::{Play, Scenario};
use crate::stage::{Direction, Fleet, Stage};
use crate::table::{Row, Table};
use crate::world::World;

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
    let versions: Vec<String> = world
        .builds
        .iter()
        .map(|build| build.version.clone())
        .collect();
    for scenario in scenarios {
        for part in parts(&versions, scenario) {
            let row = perform(world, scenario, part).await;
            note(row);
        }
    }
    if let Err(failure) = world.end().await {
        note(Row {
            shows: "the JVMs live until they are told to end",
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
pub(crate) fn expected(versions: &[String], scenarios: &[Scenario]) -> Table {
    let mut table = Table::default();
    for scenario in scenarios {
        for part in parts(versions, scenario) {
            table.add(Row {
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
    /// One JVM for each.
    versions: Vec<String>,
    direction: Option<Direction>,
}

impl Part {
    fn against(&self) -> String {
        let mut versions = self.versions.clone();
        versions.dedup();
        versions.join(" + ")
    }

    fn title(&self) -> &'static str {
        self.direction.map_or("everybody", Direction::title)
    }
}

fn parts(versions: &[String], scenario: &Scenario) -> Vec<Part> {
    let all = || Part {
        versions: versions.to_vec(),
        direction: None,
    };
    match scenario.play {
        Play::Pair(..) => {
            let each = versions.iter().flat_map(|version| {
                Direction::BOTH.map(|direction| Part {
                    versions: vec![version.clone()],
                    direction: Some(direction),
                })
            });
            each.collect()
        }
        Play::Fleet(_) => {
            let twice = versions.iter().map(|version| Part {
                versions: vec![version.clone(); 2],
                direction: None,
            });
            let mixed = (versions.len() > 1).then(all);
            twice.chain(mixed).collect()
        }
        Play::Together(_) => vec![all()],
    }
}

async fn perform(world: &Arc<World>, scenario: &'static Scenario, part: Part) -> Row {
    let began = Stamp::now();
    let mut tries = Tries::default();
    let outcome = loop {
        // A panic in the fixture is a failure of this scenario, not of the run.
        let playing = tokio::spawn(play(world.clone(), scenario, part.clone()));
        match finish(playing, limit(world, scenario)).await {
            Ok(remark) => break Ok(tries.passed(remark)),
            Err(failure) => {
                let said = world.sweep().await;
                if let Some(failure) = tries.failed(failure) {
                    break Err(Failure::new(format!("{failure}{said}")));
                }
            }
        }
    };
    Row {
        shows: scenario.shows,
        against: part.against(),
        direction: part.title(),
        outcome,
        took: Stamp::now().since(began),
    }
}

/// A machine that stands still for a moment makes somebody late, but not three times running; who is late
/// because a message is missing is late every time. What is wrong is wrong at once.
#[derive(Default)]
struct Tries {
    late: Vec<String>,
}

impl Tries {
    const MOST: usize = 3;

    fn passed(&self, remark: String) -> String {
        match self.late.last() {
            None => remark,
            Some(late) => format!("{remark}; try {}, before: {late}", self.late.len() + 1),
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
            let version = &part.versions[0];
            let mut stage = Stage::set(&world, version, direction, *terms).await?;
            let remark = play(&mut stage).await?;
            // While all are still connected.
            world.is_clean().await?;
            stage.close().await?;
            Ok(remark)
        }
        (Play::Fleet(play) | Play::Together(play), _) => {
            let mut jvms = Vec::new();
            for (number, version) in part.versions.iter().enumerate() {
                let second = part.versions[..number].contains(version);
                jvms.push(if second {
                    world.fresh_jvm(version).await?
                } else {
                    world.jvm(version).await?
                });
            }
            let mut fleet = Fleet {
                jvms,
                world: world.clone(),
            };
            let remark = play(&mut fleet).await?;
            world.is_clean().await?;
            Ok(remark)
        }
        (Play::Pair(..), None) => Err(Failure::new("a pair has a direction")),
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
    let hammering = match scenario.play {
        Play::Fleet(_) => world.pace.hammer * 2,
        Play::Pair(..) | Play::Together(_) => Duration::ZERO,
    };
    LONGEST + hammering
}

/// Far longer than any scenario takes, far shorter than anybody's patience.
const LONGEST: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
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
        assert!(tries.failed(Failure::late("300 ms")).is_none());
        assert!(tries.failed(Failure::late("300 ms")).is_none());
        let failure = tries.failed(Failure::late("301 ms")).expect("enough");
        assert_eq!(failure.to_string(), "late 3 times: 301 ms");
    }

    #[test]
    fn what_is_wrong_is_not_tried_again() {
        let mut tries = Tries::default();
        let failure = Failure::new("both held it").during("names");
        assert!(tries.failed(failure).is_some());
        assert!(tries.failed(Failure::late("x").during("y")).is_none());
    }

    /// The versions `scripts/interop` plays, in its own words.
    fn versions() -> Vec<String> {
        let script = include_str!("../../scripts/interop");
        let line = script
            .lines()
            .find_map(|line| line.strip_prefix("versions=("));
        let line = line.expect("a line that lists them");
        let words = line.trim_end_matches(')').split_whitespace();
        words.map(str::to_owned).collect()
    }

    #[test]
    fn the_table_in_the_documentation_is_that_of_a_run_in_which_everything_passes() {
        let table = expected(&versions(), crate::scenarios::ALL).markdown(Times::Hide);
        let page = include_str!("../../docs/redisson.md");
        assert!(
            page.contains(&table),
            "docs/redisson.md has to show what `scripts/interop --table` prints:\n{table}"
        );
    }
}
