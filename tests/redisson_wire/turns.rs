//! Waiting beside Java: whose turn it is, and what a waiter leaves behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::support::java::{Java, Subscriber, channel};
use super::support::{RedisServer, eventually, simulated};
use super::{PATIENCE, connect, leaves_nothing};

/// A client that asked again at once once kept a Java `tryLock` of twenty seconds out.
#[test]
fn a_java_waiter_gets_its_turn_while_ours_keep_taking_the_lock() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(AtomicU32::new(0));
        let mut ours = JoinSet::new();
        for _ in 0..8 {
            let (lock, stop, turns) = (client.lock("order"), stop.clone(), turns.clone());
            ours.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await.unwrap();
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    guard.release().await.unwrap();
                }
            });
        }
        let mut slowest = Duration::ZERO;
        for _ in 0..5 {
            let before = turns.load(Ordering::Relaxed);
            let begun = Instant::now();
            // As Redisson does it: listen, then ask at every message.
            let mut ear = Subscriber::start(&server, &channel("order")).await;
            while java.lock("order", 47, "60000").await.is_some() {
                ear.message().await;
                // A JVM over a network is no quicker.
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(begun.elapsed() < PATIENCE, "Java starves");
            }
            slowest = slowest.max(begun.elapsed());
            assert_eq!(java.unlock("order", 47).await, Some(true));
            ear.unsubscribe().await;
            // And ours go on.
            eventually(PATIENCE, "ours get their turns", async || {
                turns.load(Ordering::Relaxed) > before + 20
            })
            .await;
        }
        stop.store(true, Ordering::Relaxed);
        ours.join_all().await;
        let turns = turns.load(Ordering::Relaxed);
        eprintln!("Java waited {slowest:.0?} at most while ours took {turns} turns");
        leaves_nothing(&server, client).await;
    });
}

/// A subscription that stays is counted by every PUBLISH, and taken for a peer that waits.
#[test]
fn a_waiter_that_has_gone_leaves_no_subscription_behind() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        assert_eq!(java.lock("order", 47, "60000").await, None);
        for _ in 0..50 {
            let waiter = tokio::spawn(client.lock("order").acquire());
            eventually(PATIENCE, "it listens", async || {
                server.pubsub_channels() == [channel("order")]
            })
            .await;
            waiter.abort();
            assert!(waiter.await.is_err_and(|error| error.is_cancelled()));
            eventually(PATIENCE, "it has left the channel", async || {
                server.pubsub_channels().is_empty()
            })
            .await;
        }
        assert_eq!(java.unlock("order", 47).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}
