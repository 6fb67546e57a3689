//! Each kind of failover once: whether it still works, not how well.

use std::time::Duration;

use super::cluster::Sharded;
use super::sentinel::Watched;
use super::stage::Failover::{Killed, LostWrite, Ordered, Split, TakenOver};
use super::stage::Stage;
use super::storm::{Plan, play};
use super::terms::Terms;

const PROCESSES: usize = 3;

#[test]
fn behind_sentinels_no_two_believe_with_delay_and_acks() {
    let stage = Watched::start();
    let plan = Plan {
        terms: Terms::all(LEASE, stage.replicas()),
        failovers: vec![Killed, LostWrite, Split],
        processes: PROCESSES,
    };
    let outcome = play(&stage, &plan);
    outcome.no_two_believed();
    outcome.was_back_within(PATIENCE);
}

#[test]
fn behind_sentinels_no_two_believe_with_the_delay_alone_when_the_master_dies() {
    dies_with_the_delay_alone(&Watched::start());
}

#[test]
fn behind_sentinels_two_believe_when_a_write_is_lost() {
    let stage = Watched::start();
    let plan = Plan {
        terms: Terms::none(),
        failovers: vec![Ordered, LostWrite, Split],
        processes: PROCESSES,
    };
    let outcome = play(&stage, &plan);
    outcome.two_believed();
    outcome.was_back_within(PATIENCE);
}

#[test]
fn in_a_cluster_no_two_believe_with_delay_and_acks() {
    let stage = Sharded::start();
    let plan = Plan {
        terms: Terms::all(LEASE, stage.replicas()),
        failovers: vec![Killed, LostWrite, Split],
        processes: PROCESSES,
    };
    let outcome = play(&stage, &plan);
    outcome.no_two_believed();
    outcome.was_back_within(PATIENCE);
}

#[test]
fn in_a_cluster_no_two_believe_with_the_delay_alone_when_the_master_dies() {
    dies_with_the_delay_alone(&Sharded::start());
}

#[test]
fn in_a_cluster_two_believe_when_a_write_is_lost() {
    let stage = Sharded::start();
    let plan = Plan {
        terms: Terms::none(),
        failovers: vec![TakenOver, Ordered, LostWrite, Split],
        processes: PROCESSES,
    };
    let outcome = play(&stage, &plan);
    outcome.two_believed();
    outcome.was_back_within(PATIENCE);
}

fn dies_with_the_delay_alone(stage: &impl Stage) {
    let plan = Plan {
        terms: Terms::delay_alone(LONG_LEASE),
        failovers: vec![LostWrite],
        processes: PROCESSES,
    };
    let outcome = play(stage, &plan);
    outcome.no_two_believed();
    outcome.was_back_within(PATIENCE);
}

/// A failover that is never noticed, and no more: other tests run beside.
const PATIENCE: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(4);
/// Longer than it takes to replace a master that has died: whom it has granted something still believes in it then.
const LONG_LEASE: Duration = Duration::from_secs(10);
