//! More than twenty failovers each, as `scripts/failover` plays them.

use std::time::Duration;

use super::cluster::Sharded;
use super::sentinel::Watched;
use super::stage::Failover::{self, Killed, LostWrite, Ordered, Split, TakenOver};
use super::stage::Stage;
use super::storm::{Outcome, Plan, play};
use super::terms::Settings;

const PROCESSES: usize = 8;
const ROUNDS: usize = 6;

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn sentinel_with_delay_and_acks() {
    let stage = Watched::start();
    let terms = Settings::all(LEASE, stage.replicas());
    played(&stage, terms, &SENTINEL).no_two_believed();
}

/// Without acknowledgements no old master may live on.
#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn sentinel_with_delay_alone() {
    let terms = Settings::delay_alone(LONG_LEASE);
    played(&Watched::start(), terms, &DEATHS).no_two_believed();
}

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn cluster_with_delay_alone() {
    let terms = Settings::delay_alone(LONG_LEASE);
    played(&Sharded::start(), terms, &DEATHS).no_two_believed();
}

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn sentinel_with_neither() {
    played(&Watched::start(), Settings::none(), &SENTINEL).two_believed();
}

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn cluster_with_delay_and_acks() {
    let stage = Sharded::start();
    let terms = Settings::all(LEASE, stage.replicas());
    played(&stage, terms, &CLUSTER).no_two_believed();
}

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn cluster_with_neither() {
    played(&Sharded::start(), Settings::none(), &CLUSTER).two_believed();
}

/// Plays the failovers, and checks that locks were granted again at once.
fn played(stage: &impl Stage, terms: Settings, kinds: &[Failover]) -> Outcome {
    let failovers = (0..ROUNDS).flat_map(|_| kinds.iter().copied());
    let plan = Plan {
        terms,
        failovers: failovers.collect(),
        processes: PROCESSES,
    };
    let outcome = play(stage, &plan);
    assert!(outcome.slowest < AT_ONCE, "{:?}", outcome.slowest);
    outcome
}

const DEATHS: [Failover; 2] = [Killed, LostWrite];
const SENTINEL: [Failover; 4] = [Killed, Ordered, LostWrite, Split];
const CLUSTER: [Failover; 5] = [Killed, Ordered, TakenOver, LostWrite, Split];
const LEASE: Duration = Duration::from_secs(3);
/// Longer than it takes to replace a master that has died: the clients that it has granted a lock to still believe in it then.
const LONG_LEASE: Duration = Duration::from_secs(8);
/// The time that a failover takes in addition to its own steps and to the delay.
const AT_ONCE: Duration = Duration::from_secs(1);
