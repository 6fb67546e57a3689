//! Slots that move from server to server while their locks are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, Error, Lease};
use distlock_sim::slot_of;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::{connect, release};
use crate::support::{Cluster, PATIENCE, builder, eventually, simulated};

const LEASE: Lease = Lease::KeepAlive(Duration::from_secs(30));

/// A slot that is being moved allows commands on one key at a time, wherever the key is.
#[test]
fn a_hold_is_renewed_and_released_while_its_slot_migrates() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let client = connect(&cluster).await;
        let lock = client.lock("travelling").with_lease(LEASE);
        let guard = lock.acquire().await.expect("it is free");
        let to = cluster.another_than(cluster.node_of("travelling"));
        let from = cluster.begin_moving("travelling", to);
        cluster.move_keys(slot_of("travelling"), from, to);
        sleep(Duration::from_secs(100)).await;
        let left = cluster.redis()[to].pttl("travelling");
        assert!(left > 19_000, "it is renewed there: {left}");
        release(guard).await;
        assert_eq!(cluster.redis()[to].pttl("travelling"), -2);
        cluster.end_migration(slot_of("travelling"), to);
        let guard = lock.acquire().await.expect("it is free");
        assert_eq!(cluster.redis()[to].keys(), ["travelling"]);
        release(guard).await;
    });
}

#[derive(Default)]
struct Tally {
    inside: AtomicBool,
    grants: AtomicU64,
    over: AtomicBool,
}

async fn hammer(client: Client, tally: Arc<Tally>) {
    while !tally.over.load(Ordering::Relaxed) {
        let got = client.lock("hammered").acquire_timeout(PATIENCE).await;
        let guard = match got {
            Ok(Some(guard)) => guard,
            Ok(None) => panic!("no holder released it"),
            Err(error) => {
                assert!(error.is_transient(), "{error:?}");
                continue;
            }
        };
        assert!(!tally.inside.swap(true, Ordering::SeqCst), "two hold it");
        yield_now().await;
        sleep(Duration::from_millis(1)).await;
        tally.inside.store(false, Ordering::SeqCst);
        tally.grants.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = guard.release().await {
            assert!(error.is_transient(), "{error:?}");
        }
    }
}

#[test]
fn a_slot_that_migrates_back_and_forth_keeps_exclusion_and_starves_no_client() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let tally = Arc::new(Tally::default());
        let (mut tasks, mut clients) = (JoinSet::new(), Vec::new());
        for _ in 0..3 {
            let client = connect(&cluster).await;
            for _ in 0..2 {
                tasks.spawn(hammer(client.clone(), tally.clone()));
            }
            clients.push(client);
        }
        for round in 0..30 {
            let grants = tally.grants.load(Ordering::Relaxed);
            eventually(PATIENCE, "they go on", async || {
                tally.grants.load(Ordering::Relaxed) > grants + 20
            })
            .await;
            let to = cluster.another_than(cluster.node_of("hammered"));
            let from = cluster.begin_moving("hammered", to);
            // The slot stays open for a while.
            sleep(Duration::from_millis(20 * (round % 3))).await;
            cluster.finish_moving("hammered", from, to);
        }
        tally.over.store(true, Ordering::Relaxed);
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
        for client in clients {
            client.close().await.expect("all is released");
        }
        assert_eq!(cluster.held(), Vec::<String>::new());
    });
}

/// No server can serve keys that it does not have: the caller is told that, and not where the slot may be.
#[test]
fn a_caller_sees_no_redirection_while_a_slot_migrates() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let builder = builder(&cluster.url()).command_timeout(Duration::from_secs(2));
        let client = builder.connect().await.expect("the cluster is up");
        release(client.lock("busy").acquire().await.expect("it is free")).await;
        let to = cluster.another_than(cluster.node_of("busy"));
        let from = cluster.begin_moving("busy", to);
        // The two keys are at different servers, so neither server accepts a command on both.
        let refused = client.lock("busy").try_acquire().await;
        let Err(error @ (Error::Unavailable { .. } | Error::Timeout { .. })) = refused else {
            panic!("{refused:?}");
        };
        assert!(error.is_transient());
        assert!(!error.to_string().contains("ASK "), "{error}");
        cluster.end_migration(slot_of("busy"), from);
        release(client.lock("busy").acquire().await.expect("it is free")).await;
    });
}

/// The lease of a read hold is a key of its own, which may still be on its way when the lock has arrived.
#[test]
fn readers_are_not_taken_for_expired_while_their_slot_migrates() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let (one, other) = (connect(&cluster).await, connect(&cluster).await);
        let leaving = one.rw_lock("read").read().acquire().await;
        let leaving = leaving.expect("it is free");
        let staying = other.rw_lock("read").read().acquire().await;
        let staying = staying.expect("readers share it");
        let to = cluster.another_than(cluster.node_of("read"));
        let from = cluster.begin_moving("read", to);
        assert!(cluster.move_key(b"read", from, to));
        let mut releasing = tokio::spawn(leaving.release());
        // By then it has been tried at both servers.
        let soon = timeout(Duration::from_secs(1), &mut releasing).await;
        cluster.finish_moving("read", from, to);
        let released = match soon {
            Ok(released) => released,
            Err(_) => releasing.await,
        };
        released.expect("no panic").expect("it was held");
        let writer = one.rw_lock("read").write().try_acquire().await;
        assert!(matches!(writer, Ok(None)), "{writer:?}");
        staying.release().await.expect("it is still held");
    });
}

/// Both are renewed at once, by the same server.
#[test]
fn a_long_slot_migration_costs_no_other_lock_its_lease() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let client = connect(&cluster).await;
        let from = cluster.node_of("read");
        let reader = client.rw_lock("read").read().with_lease(LEASE);
        let reader = reader.acquire().await.expect("it is free");
        let kept = client.lock(cluster.name_at(from)).with_lease(LEASE);
        let kept = kept.acquire().await.expect("it is free");
        let to = cluster.another_than(from);
        cluster.begin_moving("read", to);
        cluster.move_keys(slot_of("read"), from, to);
        let told = timeout(Duration::from_secs(31), reader.lost()).await;
        assert!(told.is_ok(), "no server can renew it");
        sleep(Duration::from_secs(60)).await;
        assert!(kept.is_held());
        release(kept).await;
    });
}
