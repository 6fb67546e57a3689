//! Every story over every network, with every kind of lock.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet, LocalSet, spawn_local};

use super::AT_ONCE;
use super::case::{Case, Verdict};
use super::moments::Moment;
use super::rules::{RULES, Rule};
use super::stories::Story;
use super::support::Semaphore as Permit;
use super::support::{
    Arrangement, Fair, Family, Fault, Fenced, Plain, Read, Several, Simple, Write, heavy,
};
use super::world::World;

mod whatever_is_lost_the_count_is_what_the_guards_say_and_no_ghost_is_left {
    use super::*;

    #[tokio::test]
    async fn of_plain_locks() {
        tell::<Plain>(600, every_request).await;
    }

    #[tokio::test]
    async fn of_simple_locks() {
        tell::<Simple>(600, every_request).await;
    }

    #[tokio::test]
    async fn of_fenced_locks() {
        tell::<Fenced>(600, every_request).await;
    }

    #[tokio::test]
    async fn of_fair_locks() {
        tell::<Fair>(700, every_request).await;
    }

    #[tokio::test]
    async fn of_readers() {
        tell::<Read>(550, every_request).await;
    }

    #[tokio::test]
    async fn of_writers() {
        tell::<Write>(550, every_request).await;
    }

    #[tokio::test]
    async fn of_permits() {
        tell::<Permit>(350, every_request).await;
    }

    #[tokio::test]
    async fn of_several_permits() {
        tell::<Several>(350, every_request).await;
    }
}

/// A request is many commands then, and each of them is lost.
mod whatever_is_lost_without_scripts_the_same_is_true {
    use super::*;

    #[tokio::test]
    async fn of_plain_locks() {
        tell::<Plain>(300, every_command).await;
    }

    #[tokio::test]
    async fn of_simple_locks() {
        tell::<Simple>(300, every_command).await;
    }

    #[tokio::test]
    async fn of_fenced_locks() {
        tell::<Fenced>(300, every_command).await;
    }
}

/// Of what `DISTLOCK_TOPOLOGY` plays wholly, enough to see that it still can be.
mod whatever_is_lost_where_others_tell_of_a_server_the_same_is_true {
    use super::*;

    #[tokio::test]
    async fn in_a_cluster() {
        tell_on::<Plain>(Arrangement::Cluster, 120, some_requests).await;
    }

    #[tokio::test]
    async fn where_sentinels_watch() {
        tell_on::<Plain>(Arrangement::Sentinel, 120, some_requests).await;
    }
}

/// What is lost, of which story, and how.
type Loss<F> = (&'static Story<F>, Moment, &'static Rule);

async fn tell<F: Family>(
    at_least: usize,
    losses: impl AsyncFnOnce(Rc<World<F>>) -> Option<Vec<Loss<F>>>,
) {
    tell_on(Arrangement::named(), at_least, losses).await;
}

/// None is lost where there is no such thing.
async fn tell_on<F: Family>(
    arrangement: Arrangement,
    at_least: usize,
    losses: impl AsyncFnOnce(Rc<World<F>>) -> Option<Vec<Loss<F>>>,
) {
    let _heavy = heavy().await;
    let sweep = async {
        let world = Rc::new(World::start_as(arrangement).await);
        let Some(losses) = losses(world.clone()).await else {
            return;
        };
        assert!(losses.len() >= at_least, "only {} cases", losses.len());
        tell_all(world, losses).await;
    };
    LocalSet::new().run_until(sweep).await;
}

async fn every_request<F: Family>(_: Rc<World<F>>) -> Option<Vec<Loss<F>>> {
    Some(requests_of(Story::all()))
}

/// Those that no lock goes without.
async fn some_requests<F: Family>(_: Rc<World<F>>) -> Option<Vec<Loss<F>>> {
    let stories = Story::all().filter(|story| ["acquire", "release"].contains(&story.name));
    Some(requests_of(stories))
}

fn requests_of<F: Family>(stories: impl Iterator<Item = &'static Story<F>>) -> Vec<Loss<F>> {
    let losses = stories.flat_map(|story| {
        let requests = (1..=story.requests).map(Moment::Request);
        losses_of(story, requests.collect(), &mut 0)
    });
    losses.collect()
}

async fn every_command<F: Family>(world: Rc<World<F>>) -> Option<Vec<Loss<F>>> {
    if !world.server.can_do_without_scripts().await {
        return None;
    }
    let mut telling = Vec::new();
    for story in Story::all().filter(|story| !story.in_parts.is_empty()) {
        telling.push((story, spawn_local(Case::commands(world.clone(), story))));
    }
    let (mut losses, mut turn) = (Vec::new(), 0);
    for (story, commands) in telling {
        let commands = commands.await.expect("nothing is lost").into_iter();
        let moments = commands.map(Moment::Command).collect();
        losses.extend(losses_of(story, moments, &mut turn));
    }
    shows_everything(&losses);
    Some(losses)
}

fn losses_of<F: Family>(
    story: &'static Story<F>,
    moments: Vec<Moment>,
    turn: &mut usize,
) -> Vec<Loss<F>> {
    let mut losses = Vec::new();
    for moment in moments {
        let ways = moment.ways(*turn).into_iter();
        losses.extend(ways.map(|rule| (story, moment.clone(), rule)));
        *turn += 1;
    }
    losses
}

/// Each command is lost, and those that are in every transaction in most ways.
fn shows_everything<F: Family>(losses: &[Loss<F>]) {
    let mut ways: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, moment, rule) in losses {
        if let Moment::Command(command) = moment {
            ways.entry(&command.word).or_default().insert(rule.name);
        }
    }
    for (word, ways) in &ways {
        eprintln!("{word}: lost in {} ways", ways.len());
    }
    let words: Vec<_> = ways.keys().copied().collect();
    let its_own = match F::COUNTS {
        true => ["HDEL", "HRANDFIELD", "HSET"],
        false => ["DEL", "GETRANGE", "SET"],
    };
    let tokens = ["GETRANGE", "SET"].iter().filter(|_| F::FENCED);
    for word in COMMON.iter().chain(&its_own).chain(tokens) {
        assert!(words.contains(word), "no {word} among {words:?}");
    }
    for word in ["EXEC", "MULTI"] {
        let ways = &ways[word];
        assert!(
            ways.len() > RULES.len() / 2,
            "{word} is lost only as in {ways:?}"
        );
    }
}

/// The commands that are sent for every kind of lock.
const COMMON: &[&str] = &[
    "EXEC",
    "MULTI",
    "PEXPIRE",
    "PTTL",
    "PUBLISH",
    "PUBSUB",
    "TIME",
    "UNWATCH",
    "WATCH",
    "ZADD",
    "ZREMRANGEBYSCORE",
    "ZSCORE",
];

async fn tell_all<F: Family>(world: Rc<World<F>>, losses: Vec<Loss<F>>) {
    let begun = Instant::now();
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut cases = JoinSet::new();
    for loss in losses {
        let (world, room) = (world.clone(), room.clone());
        cases.spawn_local(async move {
            let _room = room.acquire_owned().await;
            let (story, moment, rule) = &loss;
            let label = format!("{}, {moment:?}: {}", story.name, rule.name);
            let told = tell_one(world, &loss).await;
            (
                (story.name, rule.name),
                told.map_err(|error| (label, error.to_string())),
            )
        });
    }
    let mut tallies: BTreeMap<_, Tally> = BTreeMap::new();
    let mut failed = Vec::new();
    while let Some(told) = cases.join_next().await {
        let (row, verdict) = told.expect("only the inner task panics");
        let tally = tallies.entry(row).or_default();
        tally.cases += 1;
        match verdict {
            Ok(verdict) => tally.add(verdict),
            Err(failure) => failed.push(failure),
        }
    }
    let total: usize = tallies.values().map(|tally| tally.cases).sum();
    print::<F>(&tallies);
    eprintln!("{total} cases in {:?}", begun.elapsed());
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
    for ((story, rule), tally) in tallies {
        let label = format!("{story}: {rule}");
        let whole = Story::<F>::all().any(|known| known.name == story && known.is_whole());
        let rule = RULES
            .iter()
            .find(|known| known.name == rule)
            .expect("one of them");
        if rule.harmless && whole {
            assert_eq!(tally.unharmed, tally.cases, "{label} did harm");
        }
        let late = if rule.fault == Fault::HoldRequest {
            tally.cases
        } else {
            0
        };
        assert_eq!(tally.late, late, "{label}: late");
    }
}

async fn tell_one<F: Family>(world: Rc<World<F>>, loss: &Loss<F>) -> Result<Verdict, JoinError> {
    let (story, moment, rule) = loss;
    let mut tries = 0;
    loop {
        // A task of its own, so that a panic spoils this case only.
        let case = Case::tell(world.clone(), story, rule, moment.clone());
        let told = spawn_local(case).await;
        tries += 1;
        // A busy machine times out now and then, but not every time.
        let harmed = told.as_ref().is_ok_and(|verdict| verdict.errors > 0);
        if !(harmed && rule.harmless && story.is_whole() && tries < TRIES) {
            return told;
        }
        tokio::time::sleep(REST * tries).await;
    }
}

/// What became of the cases of one story under one rule.
#[derive(Default)]
struct Tally {
    cases: usize,
    /// In how many of them no call brought an error.
    unharmed: usize,
    /// In how many the server executed the request after its call had been given up and cleaned up.
    late: usize,
}

impl Tally {
    fn add(&mut self, verdict: Verdict) {
        self.unharmed += usize::from(verdict.errors == 0);
        self.late += usize::from(verdict.late);
    }
}

/// A row for each rule, a column for each story: cases, of them unharmed, of them late.
fn print<F: Family>(tallies: &BTreeMap<(&str, &str), Tally>) {
    let column = |text: String| format!("{text:>16}");
    let stories = Story::<F>::all();
    let head: String = stories.map(|story| column(story.name.to_owned())).collect();
    eprintln!("{:<42}{head}", "cases/unharmed/late");
    for rule in RULES {
        let row = Story::<F>::all().map(|story| {
            let tally = tallies.get(&(story.name, rule.name));
            let tally =
                tally.map(|tally| format!("{}/{}/{}", tally.cases, tally.unharmed, tally.late));
            column(tally.unwrap_or_default())
        });
        let row: String = row.collect();
        eprintln!("{:<42}{row}", rule.name);
    }
}

/// How often a case may bring an error that it should not before somebody is to blame.
const TRIES: u32 = 8;
/// How long the first of these pauses is: what makes the machine busy may be over by then.
const REST: Duration = Duration::from_millis(200);
