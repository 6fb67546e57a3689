//! Each lock is in its slot, with all that belongs to it.

use std::time::{Duration, Instant};

use distlock::{Error, Lease, MultiLock};

use super::support::{Cluster, eventually};
use super::{PATIENCE, beside, connect, held_in, patient};

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_all_slots_are_held_listed_and_given_back() {
    let cluster = Cluster::start_masters();
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let mut guards = Vec::new();
    for number in 0..30 {
        let name = format!("lock-{number}");
        guards.push(one.lock(&*name).acquire().await.expect("it is free"));
        let refused = other.lock(&*name).try_acquire().await;
        assert!(refused.expect("it answers").is_none(), "{name} is held");
    }
    let used = beside(|| cluster.servers().iter().all(|one| !one.keys().is_empty()));
    assert!(used, "all servers have some of them");
    let listed = other.admin().list("lock-*").await;
    assert_eq!(listed.expect("they can be listed").len(), 30);
    for guard in guards {
        guard.release().await.expect("it is ours");
    }
    assert_eq!(beside(|| held_in(&cluster)), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_whose_keys_cannot_be_together_is_refused_with_the_reason() {
    let cluster = Cluster::start_masters();
    let client = connect(&cluster).await;
    for name in ["open{brace", "close}brace", "{}order"] {
        let refused = client.lock(name).acquire().await;
        let Err(error @ Error::InvalidName { .. }) = refused else {
            panic!("{name}: {refused:?}");
        };
        assert!(error.to_string().contains("in one slot"), "{error}");
        assert!(!error.is_transient());
    }
    let latch = client.latch("{start}").count().await;
    assert!(matches!(latch, Err(Error::InvalidName { .. })), "{latch:?}");
    for name in ["{order}:42", "order:{42}", "no braces at all"] {
        let guard = client.lock(name).acquire().await.expect("it is free");
        guard.release().await.expect("it is ours");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_are_taken_together_whatever_their_slots() {
    let cluster = Cluster::start_masters();
    let client = connect(&cluster).await;
    for names in [["a", "b", "c"], ["{one}a", "{one}b", "{one}c"]] {
        let all = MultiLock::new(names.map(|name| client.lock(name).into()));
        let guard = all.acquire().await.expect("all are free");
        assert_eq!(beside(|| held_in(&cluster)), names);
        let busy = client.lock(names[1]).try_acquire().await;
        assert!(busy.expect("it answers").is_none());
        guard.release().await.expect("they are ours");
        assert_eq!(beside(|| held_in(&cluster)), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_does_not_hold_up_connecting() {
    let cluster = Cluster::start_masters();

    beside(|| cluster.servers()[1].stop_process());
    // It knows nothing but what the two others say, and has all the time in the world to wait for the third.
    let begun = Instant::now();
    let builder = patient(&cluster.url()).connect_timeout(PATIENCE);
    let second = builder.connect().await.expect("two of them are up");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    beside(|| cluster.servers()[1].continue_process());
    drop(second);
}

/// The server that hangs answers nothing for longer than the other lock's lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_costs_no_lock_elsewhere_its_lease() {
    let cluster = Cluster::start_masters_with(&["--cluster-require-full-coverage", "no"]);
    let client = connect(&cluster).await;
    let lease = Duration::from_secs(6);
    let [hangs, goes_on] = beside(|| {
        let at = |place: usize| {
            let mut names = (0..).map(|number| format!("lock-{number}"));
            let port = cluster.servers()[place].port();
            let there = |name: &String| cluster.owner(name).port() == port;
            names.find(|name| there(name)).expect("some name is there")
        };
        [at(0), at(1)]
    });
    let hold = async |name: &str| {
        let lock = client.lock(name).with_lease(Lease::KeepAlive(lease));
        lock.acquire().await.expect("it is free")
    };
    let (lost, kept) = (hold(&hangs).await, hold(&goes_on).await);
    beside(|| cluster.servers()[0].stop_process());
    let told = tokio::time::timeout(PATIENCE, lost.lost()).await;
    assert!(told.is_ok(), "nobody can renew it");
    // Renewed at least once since then.
    let left = beside(|| cluster.servers()[1].pttl(&goes_on));
    assert!(left > 0, "{left}");
    assert!(kept.is_held());
    beside(|| cluster.servers()[0].continue_process());
    kept.release().await.expect("it is ours");
    eventually(PATIENCE, "the other can be had again", async || {
        let free = client.lock(&*hangs).try_acquire().await;
        matches!(free, Ok(Some(_)))
    })
    .await;
}
