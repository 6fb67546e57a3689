//! A server that was started or promoted less than a lease ago grants nothing new.

use std::time::Duration;

use distlock::{Client, Error, Lease, MultiLock};
use tokio::time::{Instant, sleep};

use super::pair::{Pair, restart};
use crate::support::{
    ChaosProxy, Fault, Match, PATIENCE, RedisServer, builder, eventually, simulated,
};

const DELAY: Duration = Duration::from_secs(8);
const LEASE: Lease = Lease::KeepAlive(DELAY);
/// Servers count whole seconds: a server that has been up for eight seconds reports that only in its ninth.
const GRAIN: Duration = Duration::from_secs(1);

#[test]
fn after_a_start_nothing_is_granted_until_every_lease_has_expired() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        for _ in 0..2 {
            let started = Instant::now();
            server.restart();
            eventually(PATIENCE, "it is there", async || {
                client.lock("new").try_acquire().await.is_ok()
            })
            .await;
            if started.elapsed() < DELAY / 2 {
                let lock = client.lock("new");
                assert!(lock.try_acquire().await.expect("it is up").is_none());
                let several = MultiLock::new([lock.into(), client.lock("newer").into()]);
                assert!(several.try_acquire().await.expect("it is up").is_none());
            }
            let guard = client
                .lock("new")
                .acquire()
                .await
                .expect("it is waited for");
            assert!(started.elapsed() >= DELAY, "{:?}", started.elapsed());
            guard.release().await.expect("it is ours");
        }
    });
}

#[test]
fn held_locks_stay_held_during_the_failover_delay() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let lock = client.lock("kept").with_owner(&client.new_owner());
        let guard = lock.acquire().await.expect("it is free");
        restart(&server);
        // The pause lasts until the end of its connections has arrived.
        sleep(Duration::from_secs(1)).await;
        let again = lock.acquire().await.expect("it is ours");
        assert_eq!(guard.hold_count(), 2);
        again.release().await.expect("it is ours");
        guard.release().await.expect("it is ours");
    });
}

#[test]
fn after_a_promotion_nothing_is_granted_until_every_lease_has_expired() {
    simulated(async || {
        let pair = Pair::start();
        is_old_enough(&pair.replica).await;
        let promoted = Instant::now();
        pair.promote();
        let client = connect(&pair.replica).await;
        assert!(
            client
                .lock("new")
                .try_acquire()
                .await
                .expect("it is up")
                .is_none()
        );
        let guard = client
            .lock("new")
            .acquire()
            .await
            .expect("it is waited for");
        assert!(promoted.elapsed() >= DELAY);
        guard.release().await.expect("it is ours");
        // A client that connects later need not wait again.
        let later = connect(&pair.replica).await;
        let guard = later.lock("new").try_acquire().await.expect("it is up");
        guard
            .expect("it has been known for long")
            .release()
            .await
            .expect("ours");
    });
}

/// An age in a reply is as of the reply, not as of the request.
#[test]
fn a_slow_reply_adds_nothing_to_the_age_of_a_server() {
    simulated(async || {
        let pair = Pair::start();
        is_old_enough(&pair.replica).await;
        let promoted = Instant::now();
        pair.promote();
        let proxy = ChaosProxy::start(pair.replica.addr());
        let slow = DELAY / 2;
        proxy.rule(Match::command("EVAL").nth(1), Fault::DelayRequest(slow));
        let client = connect_to(&proxy.url()).await;
        let guard = client.lock("new").acquire().await;
        let _guard = guard.expect("it is waited for");
        assert!(
            promoted.elapsed() >= DELAY + slow,
            "{:?}",
            promoted.elapsed()
        );
    });
}

/// No connection ends then, so a client that has one is not notified.
#[test]
fn a_server_demoted_for_a_while_grants_nothing_over_an_old_connection() {
    simulated(async || {
        let server = RedisServer::start();
        is_old_enough(&server).await;
        let client = connect(&server).await;
        let guard = client.lock("before").acquire().await.expect("it is free");
        guard.release().await.expect("it is ours");
        let other = RedisServer::start();
        server.simulated().follow(other.simulated(), Duration::ZERO);
        sleep(Duration::from_secs(1)).await;
        server.simulated().promote();
        let promoted = Instant::now();
        let lock = client.lock("after");
        // The first client that meets it gets an error: the server is another.
        let told = lock.try_acquire().await.expect_err("it was a replica");
        assert!(told.is_transient(), "{told}");
        let tried = lock.try_acquire().await.expect("it is a master");
        assert!(tried.is_none(), "it is a young one");
        let guard = lock.acquire().await.expect("it is waited for");
        assert!(promoted.elapsed() >= DELAY);
        guard.release().await.expect("it is ours");
    });
}

#[test]
fn a_first_replica_changes_nothing() {
    simulated(async || {
        let server = RedisServer::start();
        is_old_enough(&server).await;
        let client = connect(&server).await;
        let _replica = Pair::of(&server);
        let guard = client.lock("free").try_acquire().await.expect("it is up");
        guard.expect("it is free").release().await.expect("ours");
    });
}

#[test]
fn no_lease_is_longer_than_the_delay() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let too_long = Lease::Fixed(DELAY + GRAIN);
        let error = client.lock("long").with_lease(too_long).try_acquire().await;
        assert!(refused(&error.expect_err("others would take it")));
        let guard = client
            .lock("long")
            .with_lease(Lease::Fixed(DELAY))
            .acquire();
        let guard = guard.await.expect("it is free");
        assert!(refused(
            &guard.extend(DELAY + GRAIN).await.expect_err("too long")
        ));
        let with_delay = builder(&server.url()).failover_delay(DELAY);
        let error = with_delay
            .connect()
            .await
            .expect_err("thirty seconds are longer");
        assert!(
            error.to_string().contains("shorter than the default lease"),
            "{error}"
        );
        let with_delay = builder("memory:")
            .default_lease(LEASE)
            .failover_delay(DELAY);
        let error = with_delay.connect().await.expect_err("it is no server");
        assert!(
            error.to_string().contains("not supported for `memory:`"),
            "{error}"
        );
    });
}

fn refused(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidOption {
            option: "lease",
            ..
        }
    )
}

async fn is_old_enough(server: &RedisServer) {
    sleep(DELAY + GRAIN).await;
    assert!(server.up_for() > DELAY);
}

async fn connect(server: &RedisServer) -> Client {
    connect_to(&server.url()).await
}

async fn connect_to(url: &str) -> Client {
    let client = builder(url)
        .default_lease(LEASE)
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .failover_delay(DELAY);
    client.connect().await.expect("the server is up")
}
