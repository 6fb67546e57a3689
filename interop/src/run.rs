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
    for scenario in scenarios {
        for part in parts(world, scenario) {
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

/// One line of the table: against whom, and which way round.
struct Part {
    /// One JVM for each.
    versions: Vec<String>,
    direction: Option<Direction>,
}

fn parts(world: &World, scenario: &Scenario) -> Vec<Part> {
    let versions: Vec<String> = world
        .builds
        .iter()
        .map(|build| build.version.clone())
        .collect();
    let all = || Part {
        versions: versions.clone(),
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
            twice.chain([all()]).collect()
        }
        Play::Together(_) => vec![all()],
    }
}

async fn perform(world: &Arc<World>, scenario: &'static Scenario, part: Part) -> Row {
    let mut against = part.versions.clone();
    against.dedup();
    let direction = part.direction.map_or("everybody", Direction::title);
    let began = Stamp::now();
    // A panic in the fixture is a failure of this scenario, not of the run.
    let playing = tokio::spawn(play(world.clone(), scenario, part));
    let outcome = finish(playing, limit(world, scenario)).await;
    let took = Stamp::now().since(began);
    let outcome = match outcome {
        Ok(remark) => Ok(remark),
        Err(failure) => {
            let said = world.sweep().await;
            Err(Failure::new(format!("{failure}{said}")))
        }
    };
    Row {
        shows: scenario.shows,
        against: against.join(" + "),
        direction,
        outcome,
        took,
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
