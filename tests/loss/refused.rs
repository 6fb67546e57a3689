//! The store can answer and says that the lock is not ours any more: told within one renewal period.

use std::time::Instant;

use distlock::{Error, LostReason};

use super::{
    GONE, LATE, ONE_PERIOD, Observed, RedisServer, SHARED, acquire, assert_can_be_locked_again,
    connect,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_of_a_deleted_key_is_told_that_it_was_removed() {
    let client = connect(&SHARED.url()).await;
    let observed = Observed::begin(acquire(client.lock("deleted")).await);

    let fault = Instant::now();
    assert_eq!(SHARED.query::<u32>(&["DEL", "deleted"]), 1);
    let lost = observed.end().await;

    lost.print("DEL");
    lost.assert_refused(LostReason::Removed, fault);
    assert_can_be_locked_again(&client, &SHARED, "deleted").await;
    lost.assert_work_stays_dropped();
    assert!(is_lost(
        lost.guard.release().await.unwrap_err(),
        LostReason::Removed
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_holder_on_a_flushed_server_is_told_that_it_was_removed() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let one = Observed::begin(acquire(client.lock("one")).await);
    let two = Observed::begin(acquire(client.lock("two")).await);

    let fault = Instant::now();
    server.flushall();
    let (one, two) = tokio::join!(one.end(), two.end());

    one.print("FLUSHALL");
    two.print("FLUSHALL");
    one.assert_refused(LostReason::Removed, fault);
    two.assert_refused(LostReason::Removed, fault);
    assert_can_be_locked_again(&client, &server, "one").await;
    one.assert_work_stays_dropped();
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_on_a_server_that_comes_back_empty_is_told_that_it_was_removed() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let observed = Observed::begin(acquire(client.lock("forgotten")).await);
    assert!(server.pttl("forgotten") > 0);

    server.restart();
    let back = Instant::now();
    let lost = observed.end().await;

    lost.print("restarted empty");
    assert_eq!(lost.reason, LostReason::Removed);
    let took = lost.told_at.saturating_duration_since(back);
    assert!(took < ONE_PERIOD + LATE, "told after {took:?}");
    assert_can_be_locked_again(&client, &server, "forgotten").await;
    lost.assert_work_stays_dropped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_of_a_lock_forced_open_by_another_client_is_told_that_it_was_removed() {
    let client = connect(&SHARED.url()).await;
    let operator = connect(&SHARED.url()).await;
    let observed = Observed::begin(acquire(client.lock("forced")).await);

    let fault = Instant::now();
    assert!(operator.admin().force_release("forced").await.unwrap());
    let lost = observed.end().await;

    lost.print("forced open");
    lost.assert_refused(LostReason::Removed, fault);
    assert_can_be_locked_again(&client, &SHARED, "forced").await;
    lost.assert_work_stays_dropped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_of_an_overwritten_lock_is_told_who_took_it_and_leaves_it_alone() {
    let client = connect(&SHARED.url()).await;
    let observed = Observed::begin(acquire(client.lock("overwritten")).await);

    let fault = Instant::now();
    take_over("overwritten", 60_000);
    let lost = observed.end().await;

    lost.print("overwritten");
    lost.assert_refused(LostReason::TakenOver, fault);
    let error = lost.guard.release().await.unwrap_err();
    assert!(is_lost(error, LostReason::TakenOver));
    let busy = client.lock("overwritten").try_acquire().await.unwrap();
    assert!(busy.is_none(), "the other one holds it");
    let left = SHARED.pttl("overwritten");
    assert!(left > 30_000, "its lease is its own: {left} ms are left");
    assert_eq!(SHARED.query::<u32>(&["HGET", "overwritten", STRANGER]), 1);
    SHARED.cmd(&["DEL", "overwritten"]);
    assert_can_be_locked_again(&client, &SHARED, "overwritten").await;
}

/// The lock changes hands in one step, as if it had expired and been acquired by somebody else.
pub(super) fn take_over(name: &str, lease_ms: u64) {
    assert!(SHARED.pttl(name) != GONE, "there is somebody to take over");
    let script = "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], ARGV[1], 1) \
                  return redis.call('PEXPIRE', KEYS[1], ARGV[2])";
    SHARED.cmd(&["EVAL", script, "1", name, STRANGER, &lease_ms.to_string()]);
}

pub(super) fn is_lost(error: Error, why: LostReason) -> bool {
    eprintln!("{error}");
    matches!(error, Error::Lost { reason, .. } if reason == why)
}

/// A Java client's thread 1.
const STRANGER: &str = "285475da-9152-4c83-822a-67ee2f116a79:1";
