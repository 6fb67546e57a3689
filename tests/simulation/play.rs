//! The player of the scenarios, each with several seeds: the ledger of all runs, and the seeds that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::faults::{FaultKind, Schedule};
use crate::judge::Judge;
use crate::run::Sabotage;
use crate::scenario::{Outcome, SCENARIOS, Scenario};
use crate::shrink::shrink;

/// The number of failing seeds of a scenario that are shortened.
const SHOWN: usize = 3;

/// The results of a scenario.
struct Total {
    scenario: &'static Scenario,
    begun: u64,
    seeds: u64,
    /// The real time that all threads have spent.
    spent: Duration,
    simulated: Duration,
    grants: u64,
    errors: u64,
    losses: u64,
    faults: BTreeMap<String, u64>,
    failed: Vec<(u64, Option<Outcome>)>,
}

impl Total {
    fn new(scenario: &'static Scenario) -> Self {
        Self {
            scenario,
            begun: 0,
            seeds: 0,
            spent: Duration::ZERO,
            simulated: Duration::ZERO,
            grants: 0,
            errors: 0,
            losses: 0,
            faults: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    fn add(&mut self, seed: u64, played: Result<Outcome, String>) {
        self.seeds += 1;
        let (found, outcome) = match played {
            Err(error) => (vec![error], None),
            Ok(outcome) => {
                self.simulated += outcome.simulated;
                self.grants += outcome.summary.grants;
                self.errors += outcome.summary.errors;
                self.losses += outcome.summary.losses;
                for (kind, count) in &outcome.faults {
                    *self.faults.entry(kind.clone()).or_default() += count;
                }
                let found = outcome.summary.violations.iter();
                (found.map(ToString::to_string).collect(), Some(outcome))
            }
        };
        if found.is_empty() {
            return;
        }
        let replay = self.scenario.replay(seed);
        let repeats = match cfg!(tokio_unstable) {
            true => "replay it with",
            // Owners and the order of hash tables differ from run to run in this build.
            false => {
                "this build does not repeat a run; look for the failure with other seeds or with"
            }
        };
        eprintln!(
            "{}: seed {seed} failed; {repeats}: {replay}",
            self.scenario.name
        );
        for what in found.iter().take(5) {
            eprintln!("  {what}");
        }
        self.failed.push((seed, outcome));
    }

    /// Prints the scenario's line of the ledger.
    fn print(&self, threads: usize) {
        let rate = 60.0 * (self.seeds * threads as u64) as f64 / self.spent.as_secs_f64();
        let faults = self.faults.iter();
        let faults: Vec<_> = faults
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        eprintln!(
            "{}: {} ({rate:.0} a minute), {:.1} h simulated, {} grants, {} errors, {} losses, {} failed; faults: {}",
            self.scenario.name,
            counted(self.seeds, "seed"),
            self.simulated.as_secs_f64() / 3600.0,
            self.grants,
            self.errors,
            self.losses,
            counted(self.failed.len() as u64, "seed"),
            match faults.is_empty() {
                true => "none".to_owned(),
                false => faults.join(", "),
            },
        );
    }

    /// Prints the shortest list of faults with which a seed still fails.
    fn shorten(&self, seed: u64, outcome: &Outcome) {
        let all = outcome.schedule.0.len();
        let judge = outcome.summary.violations.first().map(|found| found.judge);
        let Some(judge) = judge.filter(|_| all > 0) else {
            return;
        };
        let shortest = shortest(self.scenario, seed, outcome.schedule.clone(), None, judge);
        let count = shortest.0.len();
        eprintln!(
            "{}, seed {seed}: {count} of {all} faults suffice:\n{shortest}",
            self.scenario.name
        );
    }
}

/// Returns a count with its noun: "1 seed", "2 seeds".
fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Returns a number that the command sets.
fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}={text} is no number")))
}

/// Returns the scenarios that the command names, or all of them; if it names only faults, the scenarios that have them. The usual build,
/// which cannot repeat a seed, plays only the scenarios with all faults at once: `scripts/simulate`, which CI runs, plays all of them.
fn wanted() -> Vec<&'static Scenario> {
    let words = |name| {
        let words = env::var(name).unwrap_or_default();
        words
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (names, faults) = (words("DISTLOCK_SCENARIOS"), words("DISTLOCK_FAULTS"));
    let has = |scenario: &&Scenario| {
        let mut kinds = scenario.kinds.iter();
        faults.is_empty() || kinds.any(|kind| faults.iter().any(|name| name == kind.name()))
    };
    let all_faults = crate::setup::scenarios().len();
    match names.is_empty() {
        true if cfg!(tokio_unstable) => SCENARIOS.iter().filter(has).collect(),
        true => SCENARIOS.iter().take(all_faults).filter(has).collect(),
        false => {
            let named = names.iter().map(|name| Scenario::named(name));
            let check = |scenario: &&Scenario| {
                let name = &scenario.name;
                assert!(
                    has(scenario),
                    "`{name}` has none of these faults: {faults:?}"
                );
            };
            named.inspect(check).collect()
        }
    }
}

/// Plays each scenario with the seeds that the environment names, or with one. All runs are in one queue, from which each thread
/// takes one of the scenario that has had the least time so far.
#[test]
fn every_scenario_keeps_its_promises() {
    let only: Option<u64> = number("DISTLOCK_SEED");
    let first = only.or_else(|| number("DISTLOCK_FIRST_SEED")).unwrap_or(1);
    let seconds: Option<f64> = number("DISTLOCK_SECONDS");
    let count = match (only, seconds) {
        (Some(_), _) => 1,
        (None, Some(_)) => u64::MAX,
        (None, None) => number("DISTLOCK_SEEDS").unwrap_or(1),
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let threads = number("DISTLOCK_THREADS").unwrap_or(threads);
    let begun = Instant::now();
    let totals: Vec<_> = wanted().into_iter().map(Total::new).collect();
    let totals = Mutex::new(totals);
    let lock = || totals.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || {
        let mut totals = lock();
        let is_late = seconds.is_some_and(|seconds| begun.elapsed().as_secs_f64() >= seconds);
        let open = totals.iter_mut().enumerate();
        let open = open.filter(|(_, total)| total.begun < count && !is_late);
        let (place, total) = open.min_by_key(|(_, total)| (total.spent, total.begun))?;
        total.begun += 1;
        Some((place, total.scenario, first + total.begun - 1))
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((place, scenario, seed)) = next() {
                    let begun = Instant::now();
                    let played = match seed == first {
                        true => twice(scenario, seed),
                        false => scenario.play(seed),
                    };
                    let total = &mut lock()[place];
                    total.spent += begun.elapsed();
                    total.add(seed, played);
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (mut seeds, mut failed) = (0, 0);
    for total in &totals {
        seeds += total.seeds;
        failed += total.failed.len();
        total.print(threads);
    }
    let scenarios = counted(totals.len() as u64, "scenario");
    let (played, took) = (counted(seeds, "seed"), begun.elapsed().as_secs());
    eprintln!("{played} of {scenarios}, from seed {first} on, in {took} s: {failed} failed");
    for total in &totals {
        for (seed, outcome) in total.failed.iter().take(SHOWN) {
            outcome
                .iter()
                .for_each(|outcome| total.shorten(*seed, outcome));
        }
        let has_granted = total.grants > 0 || total.seeds == 0;
        assert!(
            has_granted || only.is_some() || failed > 0,
            "{}: nothing was ever granted",
            total.scenario.name
        );
    }
    assert!(seeds > 0, "no seed was played");
    assert!(failed == 0, "{} failed", counted(failed as u64, "seed"));
}

/// Plays a seed. Where every random number is seeded, plays it twice, and checks that both runs are the same byte for byte.
fn twice(scenario: &Scenario, seed: u64) -> Result<Outcome, String> {
    let played = scenario.play(seed);
    // A trace shows a single run.
    let compares = cfg!(tokio_unstable) && env::var_os("DISTLOCK_TRACE").is_none();
    if compares && scenario.play(seed) != played {
        return Err("two runs of this seed differ".to_owned());
    }
    played
}

/// Prints the names by which `scripts/simulate` knows scenarios and faults, and the faults that can be selected for each scenario.
#[test]
fn every_scenario_has_a_unique_name() {
    let kinds = SCENARIOS.iter().flat_map(|scenario| &scenario.kinds);
    let faults: BTreeSet<_> = kinds.map(|kind| kind.name()).collect();
    let mut names = faults.clone();
    for scenario in SCENARIOS.iter() {
        let kinds = scenario.kinds.iter().map(|kind| kind.name());
        let kinds: Vec<_> = kinds.collect();
        eprintln!("scenario\t{}\t{}", scenario.name, kinds.join(" "));
        assert!(names.insert(&scenario.name), "{}", scenario.name);
    }
    for fault in faults {
        eprintln!("fault\t{fault}");
    }
}

/// Returns the shortest list of faults with which this judge still finds something.
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

/// A judge that never finds anything judges nothing: of a few seeds with its sabotage, it has to find a violation in at least one.
#[test]
fn the_judges_detect_the_violations_they_check() {
    let controls = [
        (Sabotage::Forget, "plain", Judge::Exclusion),
        (Sabotage::Forget, "read-write", Judge::Exclusion),
        (Sabotage::SetForward, "permits", Judge::Backing),
        (Sabotage::SetForward, "plain", Judge::Backing),
        (Sabotage::SlowClients, "fixed-lease", Judge::Backing),
        (Sabotage::Orphan, "plain", Judge::Orphans),
        (Sabotage::Ghost, "fair", Judge::Orphans),
        (Sabotage::StayDown, "plain", Judge::Progress),
        (Sabotage::Tokens, "fenced", Judge::Tokens),
        (Sabotage::Counts, "plain", Judge::Counts),
        (Sabotage::Line, "fair", Judge::FairOrder),
        (Sabotage::Abandon, "plain", Judge::Resolution),
        (Sabotage::Junk, "plain", Judge::Errors),
        (Sabotage::Remove, "plain", Judge::Loss),
        (Sabotage::Panic, "plain", Judge::Panic),
        (Sabotage::Refuse, "plain", Judge::Errors),
    ];
    let judges: BTreeSet<_> = controls.iter().map(|(.., judge)| *judge).collect();
    assert_eq!(judges, Judge::ALL.into(), "every judge has a control");
    for (sabotage, name, judge) in controls {
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

/// A lock is lost since a clock is set forward, among many other faults: every fault in the shortest list is needed.
#[test]
fn the_shortest_list_has_only_relevant_faults() {
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
