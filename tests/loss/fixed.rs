//! Fixed leases are not renewed, so nobody asks the store: they last until their end, whatever happens
//! to the key, and are over exactly then.

use std::time::Duration;

use distlock::{Client, Guard, Lease, LostReason};

use super::refused::{is_lost, take_over};
use super::{ChaosProxy, GONE, Observed, SHARED, acquire, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_ends_exactly_when_it_said_and_the_key_with_it() {
    let client = connect(&SHARED.url()).await;
    let observed = Observed::begin(fixed(&client, "fixed").await);

    let lost = observed.end().await;

    lost.print("fixed");
    lost.assert_expired();
    assert_eq!(lost.claims.at_risk_at, None, "nothing was to be renewed");
    lost.assert_work_stays_dropped();
    let error = lost.guard.release().await.unwrap_err();
    assert!(is_lost(error, LostReason::Expired));
    assert_eq!(SHARED.pttl("fixed"), GONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_ends_exactly_when_it_said_behind_a_partition_too() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect(&proxy.url()).await;
    let observed = Observed::begin(fixed(&client, "fixed-partitioned").await);

    proxy.partition(true);
    let lost = observed.end().await;

    lost.print("fixed, partition");
    lost.assert_expired();
    assert_eq!(lost.claims.at_risk_at, None, "nothing was to be renewed");
    lost.assert_work_stays_dropped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_that_outlived_its_key_is_found_taken_over_at_its_release() {
    let client = connect(&SHARED.url()).await;
    let observed = Observed::begin(fixed(&client, "fixed-overwritten").await);

    take_over("fixed-overwritten", 60_000);
    let lost = observed.end().await;

    lost.print("fixed, overwritten");
    lost.assert_expired();
    let error = lost.guard.release().await.unwrap_err();
    assert!(is_lost(error, LostReason::TakenOver));
    assert!(SHARED.pttl("fixed-overwritten") > 30_000);
    SHARED.cmd(&["DEL", "fixed-overwritten"]);
}

#[tokio::test]
async fn releasing_a_fixed_lease_before_its_end_says_what_became_of_the_lock() {
    let client = connect(&SHARED.url()).await;
    let removed = acquire(client.lock("fixed-removed").with_lease(LONG)).await;
    let taken = acquire(client.lock("fixed-taken").with_lease(LONG)).await;
    SHARED.cmd(&["DEL", "fixed-removed"]);
    take_over("fixed-taken", 60_000);

    assert!(removed.is_held() && taken.is_held(), "nobody has asked");
    let error = removed.release().await.unwrap_err();
    assert!(is_lost(error, LostReason::Removed));
    let error = taken.release().await.unwrap_err();
    assert!(is_lost(error, LostReason::TakenOver));
    assert!(SHARED.pttl("fixed-taken") > 30_000);
    SHARED.cmd(&["DEL", "fixed-taken"]);
}

#[tokio::test]
async fn extending_a_fixed_lease_that_was_taken_loses_it_at_once() {
    let client = connect(&SHARED.url()).await;
    let removed = acquire(client.lock("extended-removed").with_lease(LONG)).await;
    let taken = acquire(client.lock("extended-taken").with_lease(LONG)).await;
    SHARED.cmd(&["DEL", "extended-removed"]);
    take_over("extended-taken", 60_000);

    for (guard, reason) in [
        (removed, LostReason::Removed),
        (taken, LostReason::TakenOver),
    ] {
        assert!(guard.is_held());
        let error = guard.extend(Duration::from_secs(120)).await.unwrap_err();
        assert!(is_lost(error, reason));
        assert!(!guard.is_held());
        assert_eq!(guard.lost().await.map(|lost| lost.reason), Some(reason));
    }
    assert_eq!(SHARED.pttl("extended-removed"), GONE, "not made again");
    SHARED.cmd(&["DEL", "extended-taken"]);
}

async fn fixed(client: &Client, name: &str) -> Guard {
    acquire(client.lock(name).with_lease(Lease::Fixed(SHORT))).await
}

const SHORT: Duration = Duration::from_secs(4);
/// Not over before the test is.
const LONG: Lease = Lease::Fixed(Duration::from_secs(60));
