//! Waiters are woken by message, wherever their slot has moved.

use std::time::Duration;

use distlock::{Client, Error, Guard};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{LONG, PUBSUB_MODES, connect, connect_to, release};
use crate::support::{Cluster, PATIENCE, eventually, simulated};

/// Shorter than the interval at which a waiter polls by itself.
const SOON: Duration = Duration::from_millis(500);

async fn by(cluster: &Cluster, mode: &str) -> Client {
    connect_to(&format!("{}{mode}", cluster.url())).await
}

/// Starts a waiter that has sent its request and is subscribed.
async fn waiting(client: &Client, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let lock = client.lock(name).with_lease(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "it is held");
    waiting
}

/// Checks that the waiter holds the lock soon after the release.
async fn is_handed_over(guard: Guard, waiting: JoinHandle<Result<Guard, Error>>, what: &str) {
    let released = Instant::now();
    release(guard).await;
    let next = timeout(PATIENCE, waiting).await.expect("it is woken");
    let late = released.elapsed();
    assert!(late < SOON, "{what}: after {late:?}");
    release(next.expect("no panic").expect("it is free")).await;
}

async fn is_notified(holder: &Client, waiter: &Client, name: &str, what: &str) {
    let lock = holder.lock(name).with_lease(LONG);
    let guard = lock.acquire().await.expect("it is free");
    let waiting = waiting(waiter, name).await;
    is_handed_over(guard, waiting, what).await;
}

/// A client in mode `both` also notifies a fleet of both other modes.
#[test]
fn a_waiter_is_notified_in_every_pubsub_mode() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let both = by(&cluster, "?pubsub=both").await;
        for mode in PUBSUB_MODES {
            let (holder, waiter) = (by(&cluster, mode).await, by(&cluster, mode).await);
            // The locks are in several slots: the message of one must not depend on where another is.
            for master in 0..3 {
                let name = cluster.name_at(master);
                is_notified(&holder, &waiter, &name, mode).await;
                is_notified(&both, &waiter, &name, &format!("to {mode}")).await;
                is_notified(&holder, &both, &name, &format!("from {mode}")).await;
            }
        }
    });
}

#[test]
fn a_waiter_continues_at_the_successor_of_a_crashed_master() {
    simulated(async || {
        let cluster = Cluster::start();
        let (holder, waiter) = (connect(&cluster).await, connect(&cluster).await);
        let guard = holder.lock("killed").acquire().await.expect("it is free");
        let waiting = waiting(&waiter, "killed").await;
        cluster.kill_master("killed").await;
        assert!(!waiting.is_finished());
        // Wait until it has subscribed there.
        sleep(Duration::from_secs(5)).await;
        is_handed_over(guard, waiting, "at the successor").await;
        is_notified(&holder, &waiter, "killed", "later").await;
    });
}

/// And it has unsubscribed where the slot was.
#[test]
fn a_waiter_subscribes_at_the_new_node_of_a_moved_slot() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        for mode in PUBSUB_MODES {
            let (holder, waiter) = (by(&cluster, mode).await, by(&cluster, mode).await);
            let listeners = |at: usize| -> usize {
                let of = |what| -> Vec<String> { cluster.redis()[at].query(&["PUBSUB", what]) };
                of("CHANNELS").len() + of("SHARDCHANNELS").len()
            };
            let count = if mode.contains("both") { 2 } else { 1 };
            for round in 0..3 {
                let lock = holder.lock("moved").with_lease(LONG);
                let guard = lock.acquire().await.expect("it is free");
                let waiting = waiting(&waiter, "moved").await;
                let from = cluster.node_of("moved");
                assert_eq!(listeners(from), count, "{mode}");
                let to = cluster.another_than(from);
                cluster.migrate(distlock_sim::slot_of("moved"), to);
                let within = Duration::from_secs(5);
                eventually(within, &format!("{mode}: it listens there"), async || {
                    listeners(to) == count && listeners(from) == 0
                })
                .await;
                is_handed_over(guard, waiting, &format!("{mode}, round {round}")).await;
            }
        }
    });
}
