//! More than twenty failovers each, as `scripts/failover` plays them.

use std::time::Duration;

use super::cluster::Sharded;
use super::sentinel::Watched;
use super::stage::Failover::{self, Killed, LostWrite, Ordered, Split, TakenOver};
use super::stage::Stage;
use super::storm::{Plan, play};
use super::terms::Terms;

const PROCESSES: usize = 8;
const ROUNDS: usize = 6;

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn sentinel_with_delay_and_acks() {
    let stage = Watched::start();
    let terms = Terms::all(LEASE, stage.replicas());
    let outcome = play(&stage, &plan(terms, &SENTINEL));
    outcome.no_two_believed();
    outcome.was_back_within(AT_ONCE);
}

/// Without acknowledgements no master may live on.
#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn sentinel_with_delay_alone() {
    let terms = Terms::delay_alone(LONG_LEASE);
    let outcome = play(&Watched::start(), &plan(terms, &DEATHS));
    outcome.no_two_believed();
    outcome.was_back_within(AT_ONCE);
}

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn cluster_with_delay_alone() {
    let terms = Terms::delay_alone(LONG_LEASE);
    let outcome = play(&Sharded::start(), &plan(terms, &DEATHS));
    outcome.no_two_believed();
    outcome.was_back_within(AT_ONCE);
}

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn sentinel_with_neither() {
    let outcome = play(&Watched::start(), &plan(Terms::none(), &SENTINEL));
    outcome.two_believed();
    outcome.was_back_within(AT_ONCE);
}

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn cluster_with_delay_and_acks() {
    let stage = Sharded::start();
    let terms = Terms::all(LEASE, stage.replicas());
    let outcome = play(&stage, &plan(terms, &CLUSTER));
    outcome.no_two_believed();
    outcome.was_back_within(AT_ONCE);
}

#[test]
#[ignore = "minutes: `scripts/failover` plays it"]
fn cluster_with_neither() {
    let outcome = play(&Sharded::start(), &plan(Terms::none(), &CLUSTER));
    outcome.two_believed();
    outcome.was_back_within(AT_ONCE);
}

fn plan(terms: Terms, kinds: &[Failover]) -> Plan {
    let failovers = (0..ROUNDS).flat_map(|_| kinds.iter().copied());
    Plan {
        terms,
        failovers: failovers.collect(),
        processes: PROCESSES,
    }
}

const DEATHS: [Failover; 2] = [Killed, LostWrite];
const SENTINEL: [Failover; 4] = [Killed, Ordered, LostWrite, Split];
const CLUSTER: [Failover; 5] = [Killed, Ordered, TakenOver, LostWrite, Split];
const LEASE: Duration = Duration::from_secs(3);
/// Longer than it takes to replace a master that has died: whom it has granted something still believes in it then.
const LONG_LEASE: Duration = Duration::from_secs(8);
/// What a failover takes beside itself, and beside the delay.
const AT_ONCE: Duration = Duration::from_secs(1);
