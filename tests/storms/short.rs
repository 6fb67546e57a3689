//! Each kind of failover once: whether it still works, not how well.

use std::time::Duration;

use super::cluster::Sharded;
use super::sentinel::Watched;
use super::stage::Failover::{self, Killed, LostWrite, Ordered, Split, TakenOver};
use super::stage::Stage;
use super::storm::{Outcome, Plan, play};
use super::terms::Terms;

const PROCESSES: usize = 3;

#[test]
fn behind_sentinels_no_two_believe_with_delay_and_acks() {
    no_two_believe_with_delay_and_acks(&Watched::start());
}

#[test]
fn in_a_cluster_no_two_believe_with_delay_and_acks() {
    no_two_believe_with_delay_and_acks(&Sharded::start());
}

#[test]
fn in_a_cluster_no_two_believe_with_the_delay_alone_when_the_master_dies() {
    no_two_believe(
        &Sharded::start(),
        Terms::delay_alone(LONG_LEASE),
        vec![LostWrite],
    );
}

#[test]
fn in_a_cluster_two_believe_when_a_write_is_lost() {
    let failovers = vec![TakenOver, Ordered, LostWrite, Split];
    two_believe(&Sharded::start(), failovers);
}

fn no_two_believe_with_delay_and_acks(stage: &impl Stage) {
    let terms = Terms::all(LEASE, stage.replicas());
    no_two_believe(stage, terms, vec![Killed, LostWrite, Split]);
}

fn no_two_believe(stage: &impl Stage, terms: Terms, failovers: Vec<Failover>) {
    played(stage, terms, failovers).no_two_believed();
}

fn two_believe(stage: &impl Stage, failovers: Vec<Failover>) {
    played(stage, Terms::none(), failovers).two_believed();
}

/// And locks were granted again.
fn played(stage: &impl Stage, terms: Terms, failovers: Vec<Failover>) -> Outcome {
    let plan = Plan {
        terms,
        failovers,
        processes: PROCESSES,
    };
    let outcome = play(stage, &plan);
    outcome.was_back_within(PATIENCE);
    outcome
}

/// A failover that is never noticed, and no more: other tests run beside.
const PATIENCE: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(4);
/// Longer than it takes to replace a master that has died: whom it has granted something still believes in it then.
const LONG_LEASE: Duration = Duration::from_secs(10);
