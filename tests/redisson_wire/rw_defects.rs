//! Defects of Redisson's read/write lock that distlock does not have, by their numbers in the list of defects.

use std::time::Duration;

use distlock::{Client, Error, Lease, Lock};
use tokio::time::{sleep, timeout};

use super::stage::{only_tombstones_left, read, write};
use super::support::java::{Subscriber, rw_channel, timeout_key};
use super::support::{ChaosProxy, Fault, Match, RedisServer, eventually, simulated};
use super::{LEASE, PATIENCE, assert_just_set, connect, connect_to, leaves_nothing};

#[test]
fn d4_a_released_reader_does_not_end_the_renewal_of_its_writer() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let (lease, me) = (Duration::from_secs(6), client.new_owner());
        let lock = client.rw_lock("prices");
        let alive = Lease::KeepAlive(lease);
        let writer = lock.write().with_owner(&me).with_lease(alive);
        let writer = writer.acquire().await.unwrap();
        let reader = lock.read().with_owner(&me).with_lease(alive);
        reader.acquire().await.unwrap().release().await.unwrap();
        // D6: nor does a nested hold that is not renewed itself.
        let nested = lock.write().with_owner(&me).with_lease(Lease::Fixed(lease));
        nested.acquire().await.unwrap().release().await.unwrap();
        sleep(lease * 3 / 2).await;
        assert!(writer.is_held());
        assert!(server.pttl("prices") > 0);
        writer.release().await.unwrap();
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn d9_an_expired_lease_does_not_apply_to_the_next_hold() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let lock = client.rw_lock("prices").write();
        let brief = Lease::Fixed(Duration::from_secs(2));
        let brief = lock.clone().with_lease(brief).acquire().await.unwrap();
        brief.lost().await;
        let writer = lock.acquire().await.unwrap();
        assert_just_set(server.pttl("prices"), Duration::from_secs(30));
        drop(brief);
        writer.release().await.unwrap();
        // The server ends a lease a little later than its holder: the next owner may have had to wait, and to undo a request.
        only_tombstones_left(&server, client).await;
    });
}

#[test]
fn d10_and_d19_a_nested_lease_neither_shortens_the_lock_nor_adds_to_it() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let me = client.new_owner();
        let lock = client.rw_lock("prices");
        for writes in [true, false] {
            let nested = async |lease| {
                if writes {
                    let lock = lock.write().with_owner(&me).with_lease(Lease::Fixed(lease));
                    let guard = lock.acquire().await.unwrap();
                    (Some(guard), None)
                } else {
                    let lock = lock.read().with_owner(&me).with_lease(Lease::Fixed(lease));
                    let guard = lock.acquire().await.unwrap();
                    (None, Some(guard))
                }
            };
            let mut guards = vec![nested(LEASE).await];
            for (lease, lasts) in [(LEASE / 60, LEASE), (LEASE, LEASE), (LEASE * 2, LEASE * 2)] {
                guards.push(nested(lease).await);
                assert_just_set(server.pttl("prices"), lasts);
            }
            while let Some((writer, reader)) = guards.pop() {
                // And a partial release keeps the requested lease.
                assert_just_set(server.pttl("prices"), LEASE * 2);
                if let Some(guard) = writer {
                    guard.release().await.unwrap();
                }
                if let Some(guard) = reader {
                    guard.release().await.unwrap();
                }
            }
            assert!(server.keys().is_empty(), "{:?}", server.keys());
        }
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn d11_a_reader_released_under_its_writer_does_not_shorten_the_writer() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let me = client.new_owner();
        let lock = client.rw_lock("prices");
        let fixed = |lease| Lease::Fixed(lease);
        let writer = lock.write().with_owner(&me).with_lease(fixed(LEASE));
        let writer = writer.acquire().await.unwrap();
        let reading = lock.read().with_owner(&me).with_lease(fixed(LEASE / 12));
        let (outer, inner) = (reading.acquire().await, reading.acquire().await);
        for reader in [inner, outer] {
            reader.unwrap().release().await.unwrap();
            assert_just_set(server.pttl("prices"), LEASE);
        }
        writer.release().await.unwrap();
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn d32_every_reader_is_renewed_while_others_come_and_go() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let lease = Duration::from_secs(6);
        let lock = client.rw_lock("prices").read();
        let lock = lock.with_lease(Lease::KeepAlive(lease));
        let mut readers = Vec::new();
        for _ in 0..50 {
            let before = lock.acquire().await.unwrap();
            let (stays, ()) = tokio::join!(lock.acquire(), async {
                before.release().await.unwrap();
            });
            readers.push(stays.unwrap());
        }
        sleep(lease * 3 / 2).await;
        for reader in &readers {
            assert!(reader.is_held());
            let key = timeout_key("prices", &reader.owner(), 1);
            assert!(server.pttl(&key) > 0, "{key}");
        }
        for reader in readers {
            reader.release().await.unwrap();
        }
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn d36_releasing_a_lost_hold_reports_the_loss_every_time_and_publishes_nothing() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let mut ear = Subscriber::start(&server, &rw_channel("prices")).await;
        let lock = client.rw_lock("prices");
        for _ in 0..2 {
            let reader = read(&lock, LEASE).await;
            server.flushall();
            let lost = reader.release().await.unwrap_err();
            assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
            let writer = write(&lock, LEASE).await;
            server.flushall();
            let lost = writer.release().await.unwrap_err();
            assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        }
        assert!(ear.rest(&server).await.is_empty());
        ear.unsubscribe().await;
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn d43_a_waiter_notified_before_it_sleeps_does_not_sleep() {
    simulated(async || {
        is_told_before_it_sleeps(|client| client.rw_lock("prices").read()).await;
        is_told_before_it_sleeps(|client| client.rw_lock("prices").write()).await;
    });
}

/// The waiter sends a request, subscribes, and sends another; before the reply that this one was in vain arrives, the writer has left and
/// published that.
async fn is_told_before_it_sleeps<K: Send + 'static>(lock: fn(&Client) -> Lock<K>) {
    let server = RedisServer::start();
    let other = connect(&server).await;
    let prices = other.rw_lock("prices");
    // The server must know the scripts: what is held back below is a reply to one.
    read(&prices, LEASE).await.release().await.unwrap();
    let writer = write(&prices, LEASE).await;

    let proxy = ChaosProxy::start(server.addr());
    let asks = |words: &[Vec<u8>]| words.iter().any(|word| word == b"prices");
    proxy.rule(Match::words(asks).nth(2), Fault::HoldReply);
    let client = connect_to(&proxy.url()).await;
    let waiting = tokio::spawn(lock(&client).acquire());
    eventually(PATIENCE, "it asks again", async || {
        proxy.injected().len() == 1
    })
    .await;
    assert_eq!(server.pubsub_channels(), [rw_channel("prices")]);
    writer.release().await.unwrap();
    // The message takes another connection than the reply, and arrives first.
    sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "nobody has answered it");
    proxy.deliver_held();
    let granted = timeout(UNTOLD, waiting).await;
    let granted = granted.expect("it has been told, and has not slept");
    granted.unwrap().unwrap().release().await.unwrap();
    client.close().await.expect("the server is up");
    only_tombstones_left(&server, other).await;
}

/// Less than the two seconds after which a waiter sends a request without having been notified.
const UNTOLD: Duration = Duration::from_millis(1700);
