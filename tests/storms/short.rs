//! Each kind of failover once, on real servers: whether it still works, not how well. The control, and failovers with the delay alone, are
//! played in the simulation (`tests/simulation/`).

use std::time::Duration;

use super::cluster::Sharded;
use super::sentinel::Watched;
use super::stage::Failover::{Killed, LostWrite, Split};
use super::stage::Stage;
use super::storm::{Plan, play};
use super::terms::Settings;

#[test]
fn behind_sentinels_no_two_clients_hold_a_lock_with_delay_and_acks() {
    no_two_believe_with_delay_and_acks(&Watched::start());
}

#[test]
fn in_a_cluster_no_two_clients_hold_a_lock_with_delay_and_acks() {
    no_two_believe_with_delay_and_acks(&Sharded::start());
}

/// Checks that locks are granted again as well: the probe waits for that.
fn no_two_believe_with_delay_and_acks(stage: &impl Stage) {
    let plan = Plan {
        terms: Settings::all(LEASE, stage.replicas()),
        failovers: vec![Killed, LostWrite, Split],
        processes: 3,
    };
    let outcome = play(stage, &plan);
    outcome.no_two_believed();
}

const LEASE: Duration = Duration::from_secs(4);
