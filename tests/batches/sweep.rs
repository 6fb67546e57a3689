//! A batch of every sort of call over a network that does it wrong, with callers who wait on, lose
//! patience or go: afterwards each has its own answer and the store has what the guards say.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet, spawn_local};

use super::case::{Case, MANNERS, Verdict};
use super::mix::{EVERYTHING, MIXES, Mix};
use super::rules::RULES;
use super::support::{Family, Fault, Fenced, Plain, Simple, heavy};
use super::world::World;

mod whatever_becomes_of_a_mixed_batch_and_its_callers_no_ghost_is_left_and_all_get_their_turn {
    use super::*;

    #[tokio::test]
    async fn of_plain_locks() {
        let sweep = sweep::<Plain>(MIXES, 250);
        LocalSet::new().run_until(sweep).await;
    }

    /// What differs is the script that all of it travels in.
    #[tokio::test]
    async fn of_simple_locks() {
        let sweep = sweep::<Simple>(EVERYTHING, 80);
        LocalSet::new().run_until(sweep).await;
    }

    #[tokio::test]
    async fn of_fenced_locks() {
        let sweep = sweep::<Fenced>(EVERYTHING, 80);
        LocalSet::new().run_until(sweep).await;
    }
}

async fn sweep<F: Family>(mixes: &'static [Mix], at_least: usize) {
    let _heavy = heavy().await;
    let begun = Instant::now();
    let world = Rc::new(World::<F>::start().await);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut cases = JoinSet::new();
    // A reply that vanishes while those behind it come is no fault of a connection that many share.
    let rules = || {
        RULES
            .iter()
            .filter(|rule| rule.fault != Fault::SwallowReply)
    };
    for mix in mixes {
        for rule in rules() {
            for &manner in MANNERS {
                let (world, room) = (world.clone(), room.clone());
                cases.spawn_local(async move {
                    let _room = room.acquire_owned().await;
                    let mut tries = 0;
                    loop {
                        // A task of its own, so that a panic spoils this case only.
                        let case = Case::tell(world.clone(), mix, rule, manner);
                        let told = spawn_local(case).await;
                        tries += 1;
                        // A busy machine times out now and then, but not every time.
                        let harmed = told.as_ref().is_ok_and(|verdict| verdict.errors > 0);
                        if harmed && rule.harmless && manner.is_patient() && tries < TRIES {
                            tokio::time::sleep(REST * tries).await;
                            continue;
                        }
                        let label = format!("{}, {manner:?}: {}", mix.name, rule.name);
                        break ((mix.name, rule.name, manner), label, told);
                    }
                });
            }
        }
    }
    let mut tallies = BTreeMap::new();
    let mut failed = Vec::new();
    while let Some(told) = cases.join_next().await {
        let (row, label, verdict) = told.expect("only the inner task panics");
        match verdict {
            Ok(verdict) => drop(tallies.insert(row, verdict)),
            Err(error) => failed.push((label, error.to_string())),
        }
    }
    print(&tallies);
    let total = tallies.len() + failed.len();
    eprintln!("{total} cases in {:?}", begun.elapsed());
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
    assert!(total >= at_least, "only {total} cases");
    for ((mix, rule, manner), verdict) in tallies {
        let rule = rules()
            .find(|known| known.name == rule)
            .expect("one of them");
        let label = format!("{mix}, {manner:?}: {}", rule.name);
        if rule.harmless && manner.is_patient() {
            assert_eq!(verdict.errors, 0, "{label} did harm");
        }
        assert_eq!(verdict.late, rule.fault == Fault::HoldRequest, "{label}");
    }
}

/// How many calls brought an error, by rule and manner, all mixes together.
fn print(verdicts: &BTreeMap<(&str, &str, super::case::Manner), Verdict>) {
    let head: String = MANNERS
        .iter()
        .map(|manner| format!("{:>13}", format!("{manner:?}")))
        .collect();
    eprintln!("{:<42}{head}", "errors");
    for rule in RULES {
        let errors = |manner| {
            let of = verdicts
                .iter()
                .filter(move |((_, name, how), _)| *name == rule.name && *how == manner);
            of.map(|(_, verdict)| verdict.errors).sum::<usize>()
        };
        let row: String = MANNERS
            .iter()
            .map(|&manner| format!("{:>13}", errors(manner)))
            .collect();
        eprintln!("{:<42}{row}", rule.name);
    }
}

/// Enough to keep two processors busy while most cases wait for a time-out.
const AT_ONCE: usize = 12;
/// How often a case may bring an error that it should not before somebody is to blame.
const TRIES: u32 = 8;
/// How long the first pause before another try is: what makes the machine busy may be over by then.
const REST: Duration = Duration::from_millis(200);
