//! Waits that end in vain, and leases that expire.

use std::task::{Context, Waker};
use std::time::Duration;

use distlock::{Error, Lease};
use tokio::time::Instant;

use super::support::java::{Java, channel};
use super::support::{RedisServer, builder, eventually, simulated};
use super::{IN_VAIN, PATIENCE, connect, leaves_nothing};

/// D5: Redisson releases what it never acquired, when replicas do not reply. Distlock releases what the store reports as acquired.
#[test]
fn d5_nothing_is_released_that_was_not_acquired() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let slots = client.counting_semaphore("slots");
        slots.try_set(1).await.unwrap();
        // The acquire is refused, times out, or is dropped before a reply or during the wait.
        for millis in [0, 1, 2, 5, 50] {
            let wait = Duration::from_millis(millis);
            assert!(!slots.try_acquire(2).await.unwrap());
            assert!(!slots.acquire_timeout(2, IN_VAIN).await.unwrap());
            drop(tokio::time::timeout(wait, slots.acquire(2)).await);
        }
        client.close().await.unwrap();
        assert_eq!(server.query::<String>(&["GET", "slots"]), "1");
    });
}

/// D21: a waiter that gives up just when it is notified must not keep the notification from the others.
#[test]
fn d21_a_waiter_that_gives_up_while_notified_takes_no_other_turn() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let slots = client.counting_semaphore("slots");
        slots.try_set(0).await.unwrap();
        for round in 0..20 {
            let patient = {
                let slots = client.counting_semaphore("slots");
                tokio::spawn(async move { slots.acquire(1).await })
            };
            let hasty = slots.acquire_timeout(1, Duration::from_millis(20));
            let (had, given) = tokio::join!(hasty, async {
                tokio::time::sleep(Duration::from_millis(18 + round % 5)).await;
                slots.release(1).await
            });
            given.unwrap();
            match had {
                Ok(true) => slots.release(1).await.unwrap(),
                // Its wait limit was reached before the reply: the grant is released.
                Ok(false) | Err(Error::Timeout { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            let ended = tokio::time::timeout(PATIENCE, patient).await;
            ended.expect("there is one").unwrap().unwrap();
        }
        eventually(PATIENCE, "none is left over", async || {
            slots.available().await.unwrap() == 0
        })
        .await;
    });
}

/// The store's memory of a client's requests is bounded, though one of them is never polled again; and that one is carried out once.
#[test]
fn an_unpolled_change_does_not_grow_the_stored_requests() {
    simulated(async || {
        const LIMIT: Duration = Duration::from_millis(500);
        const CHANGES: i64 = 3_000;
        let server = RedisServer::start();
        let client = builder(&server.url()).command_timeout(LIMIT);
        let client = client.connect().await.unwrap();
        let semaphore = client.counting_semaphore("slots");
        semaphore.set_available(1).await.unwrap();
        let mut stuck = Box::pin(semaphore.release(1));
        let _ = stuck.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        tokio::time::sleep(2 * LIMIT).await;
        for _ in 0..CHANGES {
            semaphore.release(1).await.unwrap();
        }
        let keys = server.keys();
        let kept = keys.iter().filter(|key| key.starts_with("distlock_done:"));
        let kept: u64 = kept.map(|key| server.query::<u64>(&["ZCARD", key])).sum();
        assert!(
            kept < 1_100,
            "{kept} outcomes are kept of {CHANGES} changes"
        );
        stuck.await.unwrap();
        let there = semaphore.available().await.unwrap();
        assert_eq!(there, 1 + CHANGES + 1);
    });
}

/// Redisson takes the -1 that PTTL returns for it for a token.
#[test]
fn d8_a_hold_without_expiry_is_no_grant() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let stranger = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1";
        server.cmd(&["HSET", "order", stranger, "1"]);
        let lock = client.fenced_lock("order");
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(lock.acquire_timeout(IN_VAIN).await.unwrap().is_none());
        assert_eq!(server.hgetall("order").len(), 1);
        assert_eq!(server.keys(), ["order"], "no token was given");
    });
}

/// Redisson's `lockAndGetToken` ignores its lease, and its `tryLockAndGetToken` waits.
#[test]
fn d28_a_fixed_lease_is_respected_and_a_try_does_not_wait() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let lease = Duration::from_secs(9);
        let lock = client.fenced_lock("order").with_lease(Lease::Fixed(lease));
        let guard = lock.acquire().await.unwrap();
        let left = server.pttl("order");
        assert!((1..=9_000).contains(&left), "{left} ms");
        let begun = Instant::now();
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(begun.elapsed() < lease / 9, "{:?}", begun.elapsed());
        guard.lost().await;
        assert!(begun.elapsed() >= lease / 2, "{:?}", begun.elapsed());
    });
}

#[test]
fn a_redisson_hold_without_expiry_is_respected_and_breaks_no_wait() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        assert_eq!(java.lock("order", 47, "60000").await, None);
        server.cmd(&["PERSIST", "order"]);
        assert_eq!(server.pttl("order"), -1);
        let lock = client.lock("order");
        assert!(lock.try_acquire().await.unwrap().is_none());
        let found = client.admin().inspect("order").await.unwrap();
        assert_eq!(found.expect("it is held").ttl, None);

        let (begun, wait) = (Instant::now(), Duration::from_millis(1500));
        assert!(lock.acquire_timeout(wait).await.unwrap().is_none());
        assert!(begun.elapsed() >= wait, "{:?}", begun.elapsed());

        let waiter = tokio::spawn(lock.acquire());
        eventually(PATIENCE, "it waits", async || {
            server.pubsub_channels() == [channel("order")]
        })
        .await;
        assert_eq!(server.pttl("order"), -1, "it is not ours to end");
        assert_eq!(java.unlock("order", 47).await, Some(true));
        let guard = waiter.await.unwrap().unwrap();
        assert!(server.pttl("order") > 0);
        guard.release().await.unwrap();
        leaves_nothing(&server, client).await;
    });
}
