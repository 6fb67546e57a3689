//! The store cannot be asked: the hold lasts as long as its lease and not a moment longer, and the
//! holder is warned before.

use distlock::{Error, Lease};

use super::{
    ChaosProxy, LEASE, Observed, PATIENCE, RedisServer, SHARED, acquire,
    assert_can_be_locked_again, connect, eventually,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_on_a_killed_server_is_warned_and_then_told_that_its_lease_expired() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let observed = Observed::begin(acquire(client.lock("killed")).await);

    server.kill();
    let lost = observed.end().await;

    lost.print("SIGKILL");
    lost.assert_warned();
    lost.assert_expired();
    server.restart();
    // Redisson's testLockAfterTimeout.
    assert_can_be_locked_again(&client, &server, "killed").await;
    lost.assert_work_stays_dropped();
    assert_eq!(server.keys(), Vec::<String>::new());
}

/// By the clock the lock was held until the work ended: a missing reply is no loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_succeeds_though_the_server_does_not_answer_its_release() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let lock = client
        .lock("kept")
        .with_lease(Lease::KeepAlive(PATIENCE * 10));
    let done = lock.run(async |held| {
        server.kill();
        held.check().expect("its lease is long");
    });
    done.await.expect("it was held to the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_a_loss_has_the_error_of_the_last_renewal() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let guard = acquire(client.lock("killed")).await;

    server.kill();
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    let lost = lost.expect("it is told").expect("it was not given back");
    let renewal = lost.cause.clone().expect("renewals failed");
    for error in [lost.into(), guard.check().unwrap_err()] {
        assert!(error.to_string().ends_with(&*renewal), "{error}");
        assert!(matches!(error, Error::Lost { cause: Some(cause), .. } if cause == renewal));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_from_the_server_is_warned_and_then_told_that_its_lease_expired() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect(&proxy.url()).await;
    let observed = Observed::begin(acquire(client.lock("partitioned")).await);

    proxy.partition(true);
    let lost = observed.end().await;

    lost.print("partition");
    lost.assert_warned();
    lost.assert_expired();
    proxy.partition(false);
    assert_can_be_locked_again(&client, &SHARED, "partitioned").await;
    lost.assert_work_stays_dropped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_connections_are_refused_is_warned_and_then_told_that_its_lease_expired() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect(&proxy.url()).await;
    let observed = Observed::begin(acquire(client.lock("refused")).await);

    proxy.refuse(true);
    proxy.cut_all();
    let lost = observed.end().await;

    lost.print("cut and refused");
    lost.assert_warned();
    lost.assert_expired();
    proxy.refuse(false);
    assert_can_be_locked_again(&client, &SHARED, "refused").await;
    lost.assert_work_stays_dropped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_on_a_frozen_server_is_warned_and_then_told_that_its_lease_expired() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let observed = Observed::begin(acquire(client.lock("frozen")).await);

    server.stop_process();
    let lost = observed.end().await;

    lost.print("SIGSTOP");
    lost.assert_warned();
    lost.assert_expired();
    server.continue_process();
    assert_can_be_locked_again(&client, &server, "frozen").await;
    lost.assert_work_stays_dropped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_network_heals_in_time_was_at_risk_and_keeps_the_lock() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect(&proxy.url()).await;
    let guard = acquire(client.lock("healed")).await;
    let (held, granted) = (guard.held(), guard.valid_until());
    let observed = Observed::begin(guard);

    proxy.partition(true);
    eventually(PATIENCE, "it is at risk", async || held.at_risk().is_some()).await;
    assert!(held.is_held(), "a risk is not a loss");
    proxy.partition(false);
    eventually(PATIENCE, "the risk is over", async || {
        held.at_risk().is_none()
    })
    .await;

    assert!(held.is_held());
    eventually(PATIENCE, "it is held beyond its lease", async || {
        held.valid_until() > granted + LEASE
    })
    .await;
    let claims = observed.still_held().await;
    assert!(claims.at_risk_at.is_some());
    assert!(claims.looks > 100);
}
