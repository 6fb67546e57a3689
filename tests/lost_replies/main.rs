//! Requests and replies that are lost, late, doubled or cut off: afterwards the count in Redis is what
//! the guards say, and no hold is left that nobody has, not even for one lease.
//!
//! The sweep tells small stories ([`stories`]) over a network that does one thing wrong ([`rules`]), and
//! checks after every step ([`case`]). What a single fault in one story cannot show is in [`corners`].

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]
#![expect(
    clippy::future_not_send,
    reason = "the cases run side by side on one thread"
)]

#[path = "../support/mod.rs"]
mod support;

mod case;
mod corners;
mod rules;
mod stories;
mod walks;
mod world;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

use case::{Case, Verdict};
use rules::RULES;
use stories::STORIES;
use support::Fault;
use world::World;

/// Enough to keep two processors busy while most cases wait for a time-out.
const AT_ONCE: usize = 20;
const AT_LEAST: usize = 500;
/// How often a case may bring an error that it should not before somebody is to blame.
const TRIES: u32 = 3;

#[tokio::test]
async fn whatever_is_lost_the_count_is_what_the_guards_say_and_no_ghost_is_left() {
    LocalSet::new().run_until(tell_every_story()).await;
}

async fn tell_every_story() {
    let begun = Instant::now();
    let world = Rc::new(World::start().await);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut cases = JoinSet::new();
    for story in STORIES {
        for rule in RULES {
            for nth in 1..=story.requests {
                let (world, room) = (world.clone(), room.clone());
                let label = format!("{}, request {nth}: {}", story.name, rule.name);
                cases.spawn_local(async move {
                    let _room = room.acquire_owned().await;
                    let mut tries = 0;
                    let verdict = loop {
                        // A task of its own, so that a panic spoils this case only.
                        let case = Case::tell(world.clone(), story, rule, nth);
                        let told = tokio::task::spawn_local(case).await;
                        tries += 1;
                        // A busy machine times out now and then, but not every time.
                        let harmed = told.as_ref().is_ok_and(|verdict| verdict.errors > 0);
                        if !(harmed && rule.harmless && story.is_whole() && tries < TRIES) {
                            break told.map_err(|error| (label, error.to_string()));
                        }
                    };
                    ((story.name, rule.name), verdict)
                });
            }
        }
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
    print(&tallies);
    eprintln!("{total} cases in {:?}", begun.elapsed());
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
    assert!(total >= AT_LEAST, "only {total} cases");
    for (story, rule) in STORIES
        .iter()
        .flat_map(|story| RULES.iter().map(move |rule| (story, rule)))
    {
        let Tally {
            cases,
            unharmed,
            late,
        } = tallies[&(story.name, rule.name)];
        let label = format!("{}: {}", story.name, rule.name);
        if rule.harmless && story.is_whole() {
            assert_eq!(unharmed, cases, "{label} did harm");
        }
        let is_late = rule.fault == Fault::HoldRequest;
        assert_eq!(late, if is_late { cases } else { 0 }, "{label}: late");
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
fn print(tallies: &BTreeMap<(&str, &str), Tally>) {
    let column = |text: String| format!("{text:>14}");
    let head: String = STORIES
        .iter()
        .map(|story| column(story.name.to_owned()))
        .collect();
    eprintln!("{:<42}{head}", "cases/unharmed/late");
    for rule in RULES {
        let row: String = STORIES
            .iter()
            .map(|story| {
                let tally = &tallies[&(story.name, rule.name)];
                column(format!("{}/{}/{}", tally.cases, tally.unharmed, tally.late))
            })
            .collect();
        eprintln!("{:<42}{row}", rule.name);
    }
}

/// Far longer than anything takes on a busy machine, far shorter than [`LEASE`].
const PATIENCE: Duration = Duration::from_secs(20);
/// A ghost would be seen for this long.
const LEASE: Duration = Duration::from_secs(60);
const COMMAND_TIMEOUT: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
