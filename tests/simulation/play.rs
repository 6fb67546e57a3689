//! Every scenario with several seeds: the ledger of what was played, and the failing seeds with their shortest lists of faults.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::faults::{FaultKind, Schedule};
use crate::judge::Judge;
use crate::run::{Outcome, Sabotage, Scenario};
use crate::shrink::shrink;

/// How many seeds each scenario runs with in the test suite.
const FEW: u64 = 3;
/// So many failing seeds of a scenario are shortened and printed.
const SHOWN: usize = 3;

/// What a scenario came to.
#[derive(Default)]
struct Total {
    seeds: u64,
    simulated: Duration,
    grants: u64,
    errors: u64,
    losses: u64,
    faults: BTreeMap<FaultKind, u64>,
    failed: Vec<(u64, Outcome)>,
}

impl Total {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.simulated += outcome.simulated;
        self.grants += outcome.summary.grants;
        self.errors += outcome.summary.errors;
        self.losses += outcome.summary.losses;
        for event in &outcome.schedule.0 {
            *self.faults.entry(event.kind).or_default() += 1;
        }
        if !outcome.summary.violations.is_empty() {
            self.failed.push((seed, outcome));
        }
    }
}

/// A number that the command gives.
fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}={text} is no number")))
}

/// Plays a scenario with the seeds that the environment names, several at a time, and prints its line of the ledger.
fn play(scenario: &Scenario) {
    let only: Option<u64> = number("DISTLOCK_SEED");
    let first = only.or_else(|| number("DISTLOCK_FIRST_SEED")).unwrap_or(1);
    let seconds: Option<f64> = number("DISTLOCK_SECONDS");
    let count = match (only, seconds) {
        (Some(_), _) => 1,
        (None, Some(_)) => u64::MAX / 2,
        (None, None) => number("DISTLOCK_SEEDS").unwrap_or(FEW),
    };
    let begun = Instant::now();
    let total = Mutex::new(Total::default());
    let next = AtomicU64::new(first);
    thread::scope(|scope| {
        for _ in 0..number("DISTLOCK_THREADS").unwrap_or(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let elapsed = begun.elapsed().as_secs_f64();
                    let is_late = seconds.is_some_and(|seconds| elapsed >= seconds);
                    if seed - first >= count || is_late {
                        return;
                    }
                    let outcome = scenario.play(seed);
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    total.add(seed, outcome);
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let rate = 60.0 * total.seeds as f64 / begun.elapsed().as_secs_f64();
    let faults = total.faults.iter();
    let faults: Vec<_> = faults
        .map(|(kind, count)| format!("{count} {}", kind.name()))
        .collect();
    eprintln!(
        "{}: {} seeds ({rate:.0} a minute), {:.1} h simulated, {} grants, {} errors, {} losses, {} violations; faults: {}",
        scenario.name,
        total.seeds,
        total.simulated.as_secs_f64() / 3600.0,
        total.grants,
        total.errors,
        total.losses,
        total.failed.len(),
        faults.join(", "),
    );
    total.failed.sort_by_key(|(seed, _)| *seed);
    let failed = total.failed.len();
    let mut shown = String::new();
    for (seed, outcome) in total.failed.into_iter().take(SHOWN) {
        show(&mut shown, scenario, seed, outcome);
    }
    assert!(
        failed == 0,
        "{}: {failed} seeds failed\n{shown}",
        scenario.name
    );
    assert!(
        total.grants > 0 || only.is_some(),
        "nothing was ever granted"
    );
}

/// Prints what is wrong with a seed, and the faults that it takes.
fn show(text: &mut String, scenario: &Scenario, seed: u64, outcome: Outcome) {
    let judge = outcome.summary.violations[0].judge;
    let all = outcome.schedule.0.len();
    let _ = writeln!(
        text,
        "seed {seed}, replay it with: {}",
        scenario.replay(seed)
    );
    for violation in outcome.summary.violations.iter().take(5) {
        let _ = writeln!(text, "  {violation}");
    }
    eprintln!("{text}shortening the list of faults ...");
    let shortest = shortest(scenario, seed, outcome.schedule, None, judge);
    let _ = writeln!(
        text,
        "{} of {all} faults suffice:\n{shortest}",
        shortest.0.len()
    );
    let _ = writeln!(text, "{:?}", crate::setup::Setup::draw(scenario, seed));
}

/// The shortest list of faults for which this judge still finds something.
fn shortest(
    scenario: &Scenario,
    seed: u64,
    schedule: Schedule,
    sabotage: Option<Sabotage>,
    judge: Judge,
) -> Schedule {
    shrink(schedule, |schedule| {
        let outcome = scenario.play_with(seed, schedule, sabotage);
        let mut violations = outcome.summary.violations.iter();
        violations.any(|violation| violation.judge == judge)
    })
}

/// Only where all that is random is seeded.
#[cfg(tokio_unstable)]
#[test]
fn a_seed_repeats_every_byte() {
    for (seed, scenario) in (1..).zip(crate::run::SCENARIOS) {
        let [one, other] = [0; 2].map(|_| scenario.play(seed));
        assert_eq!(one, other, "{}, seed {seed}", scenario.name);
    }
}

/// The judges are no judges if they see nothing: of a few seeds, the one that is there for it finds one wrong at least.
#[test]
fn the_judges_see_what_they_are_there_for() {
    for (sabotage, name, judge) in [
        (Sabotage::Forget, "plain", Judge::Exclusion),
        (Sabotage::Forget, "read_write", Judge::Exclusion),
        (Sabotage::SetForward, "permits", Judge::Backing),
        (Sabotage::SetForward, "plain", Judge::Backing),
        (Sabotage::SlowClients, "fixed_lease", Judge::Backing),
        (Sabotage::Orphan, "plain", Judge::Orphans),
        (Sabotage::Ghost, "fair", Judge::Orphans),
        (Sabotage::StayDown, "plain", Judge::Progress),
        (Sabotage::Tokens, "fenced", Judge::Tokens),
        (Sabotage::Counts, "plain", Judge::Counts),
        (Sabotage::Line, "fair", Judge::FairOrder),
    ] {
        let scenario = Scenario::named(name);
        let seen = (1..=10).any(|seed| {
            let outcome = scenario.play_with(seed, scenario.schedule(seed), Some(sabotage));
            let mut violations = outcome.summary.violations.iter();
            violations.any(|violation| violation.judge == judge)
        });
        eprintln!("{sabotage:?} in {name}: {judge:?} has seen it: {seen}");
        assert!(seen, "{sabotage:?} was not seen by {judge:?}");
    }
}

/// A lock is lost since a clock is set forward, among many other faults: of those in the shortest list none can be spared.
#[test]
fn the_shortest_list_has_only_what_matters() {
    let scenario = Scenario::named("plain");
    let forward = |outcome: &Outcome| {
        let mut violations = outcome.summary.violations.iter();
        violations.any(|violation| violation.judge == Judge::Backing)
    };
    let failing = (1..=20).find_map(|seed| {
        let mut schedule = scenario.schedule(seed);
        schedule.set_forward_now_and_then();
        let outcome = scenario.play_with(seed, schedule.clone(), None);
        forward(&outcome).then_some((seed, schedule))
    });
    let (seed, schedule) = failing.expect("a lease does not survive that");
    let all = schedule.0.len();
    let shortest = shortest(scenario, seed, schedule, None, Judge::Backing);
    assert!(shortest.0.len() < all, "{shortest}");
    assert!(shortest.has(FaultKind::SetForward), "{shortest}");
    for spared in 0..shortest.0.len() {
        let mut fewer = shortest.clone();
        fewer.0.remove(spared);
        let outcome = scenario.play_with(seed, fewer, None);
        assert!(!forward(&outcome), "{spared} can be spared:\n{shortest}");
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                play(Scenario::named(stringify!($name)));
            }
        )*

        #[test]
        fn every_scenario_is_played() {
            let all = [$(stringify!($name)),*];
            let known: Vec<_> = crate::run::SCENARIOS.iter().map(|known| known.name).collect();
            assert_eq!(known, all);
        }
    };
}

tests! {
    plain fair simple fenced read write read_write permits counting latch multi quorum
    reentrant fixed_lease without_scripts failover_delay durability
}
