//! Slots that are given from server to server while their locks are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, Error, Lease};

use super::support::{Cluster, RedisServer, Rights, eventually};
use super::{PATIENCE, beside, connect, held_in, patient};

fn another_than<'a>(cluster: &'a Cluster, one: &RedisServer) -> &'a RedisServer {
    let mut others = cluster.servers().iter();
    let other = others.find(|server| server.port() != one.port());
    other.expect("there are several")
}

/// What a slot that is on its way allows of: one key at a time, wherever it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_renewed_and_given_back_while_its_slot_is_on_its_way() {
    let cluster = Cluster::start_masters();
    let client = connect(&cluster).await;
    let lease = Lease::KeepAlive(Duration::from_secs(6));
    let lock = client.lock("travelling").with_lease(lease);
    let guard = lock.acquire().await.expect("it is free");
    let slot = beside(|| cluster.slot("travelling"));
    let from = beside(|| cluster.owner("travelling"));
    let to = another_than(&cluster, from);
    beside(|| {
        cluster.begin_migration(slot, from, to);
        cluster.move_keys(slot, from, to);
    });
    // Asked for where it is: its slot is still the other's.
    let left = || -> i64 {
        beside(|| {
            let mut there = redis::Client::open(to.own_url()).expect("an address");
            let asking = redis::pipe()
                .cmd("ASKING")
                .ignore()
                .cmd("PTTL")
                .arg("travelling")
                .clone();
            let (left,) = asking.query::<(i64,)>(&mut there).expect("it answers");
            left
        })
    };
    for (bounds, what) in [(0..4_900, "time passes"), (5_000..6_001, "it is renewed")] {
        eventually(PATIENCE, what, async || bounds.contains(&left())).await;
    }
    guard.release().await.expect("it is still ours");
    assert_eq!(left(), -2, "it is given back there");
    beside(|| cluster.end_migration(slot, to));
    let guard = lock.acquire().await.expect("it is free");
    assert_eq!(beside(|| to.keys()), ["travelling"]);
    guard.release().await.expect("it is ours");
}

#[derive(Default)]
struct Tally {
    inside: AtomicBool,
    grants: AtomicU64,
    overlaps: AtomicU64,
    over: AtomicBool,
}

async fn hammer(client: Client, tally: Arc<Tally>) {
    while !tally.over.load(Ordering::Relaxed) {
        let got = client.lock("hammered").acquire_timeout(PATIENCE).await;
        let guard = match got {
            Ok(Some(guard)) => guard,
            Ok(None) => panic!("nobody gave it back"),
            Err(error) => {
                assert!(error.is_transient(), "{error:?}");
                continue;
            }
        };
        if tally.inside.swap(true, Ordering::SeqCst) {
            tally.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        tokio::task::yield_now().await;
        tally.inside.store(false, Ordering::SeqCst);
        tally.grants.fetch_add(1, Ordering::Relaxed);
        match guard.release().await {
            Ok(()) => {}
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_to_and_fro_lets_no_two_in_and_keeps_nobody_out() {
    let cluster = Cluster::start_masters();
    let tally = Arc::new(Tally::default());
    let mut tasks = tokio::task::JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = connect(&cluster).await;
        for _ in 0..2 {
            tasks.spawn(hammer(client.clone(), tally.clone()));
        }
        clients.push(client);
    }
    let slot = beside(|| cluster.slot("hammered"));
    for _ in 0..8 {
        let grants = tally.grants.load(Ordering::Relaxed);
        eventually(PATIENCE, "they go on", async || {
            tally.grants.load(Ordering::Relaxed) > grants + 20
        })
        .await;
        beside(|| {
            let to = another_than(&cluster, cluster.owner("hammered"));
            cluster.migrate(slot, to);
        });
    }
    tally.over.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert_eq!(tally.overlaps.load(Ordering::Relaxed), 0);
    for client in clients {
        client.close().await.expect("all is given back");
    }
    assert_eq!(beside(|| held_in(&cluster)), Vec::<String>::new());
}

/// No server can say what it has not: who asks is told that, and not where the slot may be.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_is_not_told_where_a_slot_is_on_its_way_to() {
    let cluster = Cluster::start_masters();
    let builder = patient(&cluster.url()).command_timeout(Duration::from_secs(2));
    let client = builder.connect().await.expect("the cluster is up");
    let guard = client.lock("busy").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
    let (slot, from) = beside(|| (cluster.slot("busy"), cluster.owner("busy")));
    beside(|| cluster.begin_migration(slot, from, another_than(&cluster, from)));
    // Its two keys are in neither place, so neither server takes both of them.
    let refused = client.lock("busy").try_acquire().await;
    let Err(error @ (Error::Unavailable { .. } | Error::Timeout { .. })) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.is_transient());
    assert!(!error.to_string().contains("ASK "), "{error}");
    beside(|| cluster.end_migration(slot, from));
    let guard = client.lock("busy").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
}

/// How long a reader is there is kept in keys of its own, which may still be on their way when the lock has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn readers_are_not_taken_for_gone_while_their_slot_is_on_its_way() {
    let cluster = Cluster::start_masters();
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let leaving = one.rw_lock("read").read();
    let leaving = leaving.acquire().await.expect("it is free");
    let staying = other.rw_lock("read").read();
    let staying = staying.acquire().await.expect("readers share it");
    let (slot, from) = beside(|| (cluster.slot("read"), cluster.owner("read")));
    let to = another_than(&cluster, from);
    beside(|| {
        cluster.begin_migration(slot, from, to);
        let port = to.port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, "read", "0", "5000"];
        from.cmd(&[&words, Rights::from_env().for_migrating()].concat());
    });
    let mut releasing = tokio::spawn(leaving.release());
    // Long enough for it to have been tried at both.
    let soon = tokio::time::timeout(Duration::from_secs(1), &mut releasing).await;
    beside(|| {
        cluster.move_keys(slot, from, to);
        cluster.end_migration(slot, to);
    });
    let released = match soon {
        Ok(released) => released,
        Err(_) => releasing.await,
    };
    released.expect("no panic").expect("it was held");
    let writer = one.rw_lock("read").write().try_acquire().await;
    assert!(matches!(writer, Ok(None)), "{writer:?}");
    staying.release().await.expect("it is still held");
}

/// Both are renewed at once, by the same server.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_long_on_its_way_costs_no_lock_beside_it_its_lease() {
    let cluster = Cluster::start_masters();
    let client = connect(&cluster).await;
    let lease = Lease::KeepAlive(Duration::from_secs(6));
    let from = beside(|| cluster.owner("read"));
    let beside_it = beside(|| {
        let mut names = (0..).map(|number| format!("lock-{number}"));
        names.find(|name| cluster.owner(name).port() == from.port())
    });
    let beside_it = beside_it.expect("some name is there");
    let reader = client.rw_lock("read").read().with_lease(lease);
    let reader = reader.acquire().await.expect("it is free");
    let kept = client.lock(beside_it).with_lease(lease);
    let kept = kept.acquire().await.expect("it is free");
    beside(|| {
        let (slot, to) = (cluster.slot("read"), another_than(&cluster, from));
        cluster.begin_migration(slot, from, to);
        cluster.move_keys(slot, from, to);
    });
    let told = tokio::time::timeout(PATIENCE, reader.lost()).await;
    assert!(told.is_ok(), "nobody can renew it");
    // It was to be renewed as often.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(kept.is_held());
    kept.release().await.expect("it is ours");
}
