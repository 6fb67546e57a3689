//! A waiter through a failover is notified at the new master.

use std::time::Duration;

use distlock::{Backoff, Client, Error, Guard, Lease, Lock, Wait};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{PATIENCE, connect, held_at, patient};
use crate::support::sentinel::{client_connections, until_left};
use crate::support::{RedisServer, Topology, eventually, simulated};

/// Shorter than the interval at which a waiter polls by itself: a waiter that has the lock by then was notified of its release.
const SOON: Duration = Duration::from_millis(500);

/// Returns a lock with a lease far longer than any test: only a message explains a grant that does not come late.
fn long(client: &Client, name: &str) -> Lock {
    let lease = Lease::KeepAlive(Duration::from_secs(300));
    client.lock(name).with_lease(lease)
}

async fn until_subscribed(server: &RedisServer, name: &str) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    eventually(PATIENCE, "the waiter listens", async || {
        let (_, count): (String, u64) = server.query(&["PUBSUB", "NUMSUB", &channel]);
        count == 1
    })
    .await;
}

/// Waits for the guard of a task, and releases it.
async fn passes(waiting: JoinHandle<Result<Guard, Error>>) {
    let got = timeout(PATIENCE, waiting).await.expect("it is free");
    let guard = got.expect("no panic").expect("no error");
    guard.release().await.expect("it is ours");
}

#[test]
fn a_waiter_is_notified_by_message_at_the_new_master() {
    simulated(async || {
        let topology = Topology::start().await;
        let clients = [connect(&topology).await, connect(&topology).await];
        let first = long(&clients[0], "told").acquire().await;
        let mut guard: Guard = first.expect("it is free");
        for round in 1..6 {
            let waiter = &clients[round % 2];
            let waiting = tokio::spawn(long(waiter, "told").acquire());
            until_subscribed(topology.master(), "told").await;
            topology.until_settled().await;
            let (old, new) = topology.fail_over().await;
            until_left(old).await;
            until_subscribed(new, "told").await;
            assert!(!waiting.is_finished(), "it is held");
            let released = Instant::now();
            guard.release().await.expect("it is still ours");
            let got = timeout(SOON, waiting).await;
            let got = got.unwrap_or_else(|_| panic!("not within {:?}", released.elapsed()));
            guard = got.expect("no panic").expect("no error");
        }
        guard.release().await.expect("it is still ours");
    });
}

#[test]
fn a_waiter_survives_the_crash_of_the_master() {
    simulated(async || {
        let topology = Topology::start().await;
        let (holder, waiter) = (connect(&topology).await, connect(&topology).await);
        let guard = long(&holder, "dead").acquire().await.expect("it is free");
        let waiting = tokio::spawn(long(&waiter, "dead").acquire());
        let pauses = Backoff::new(Duration::from_millis(50), Duration::from_millis(200));
        let poller = connect(&topology).await;
        let poller = long(&poller, "dead").with_wait(Wait::Poll(pauses));
        let master = topology.master();
        let asked = || master.commandstats("evalsha") + master.commandstats("eval");
        until_subscribed(master, "dead").await;
        let before = asked();
        let polling = tokio::spawn(poller.acquire());
        eventually(PATIENCE, "it polls", async || asked() > before + 2).await;
        let (_, new) = topology.kill_master().await;
        until_subscribed(new, "dead").await;
        assert!(
            !waiting.is_finished() && !polling.is_finished(),
            "it is held"
        );
        guard.release().await.expect("it is still ours");
        // The first of the two releases the lock, and the other is granted it.
        tokio::join!(passes(waiting), passes(polling));
    });
}

#[test]
fn a_call_that_comes_between_two_masters_waits_for_the_next() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = connect(&topology).await;
        let other = patient(&(topology.url() + "?scripts=off")).connect().await;
        let old = topology.master();
        old.kill();
        // Requests that are sent before this have an unknown outcome. The sentinels have not noticed yet.
        until_left(old).await;
        let calls = [client, other.expect("it is up")].map(|client| {
            tokio::spawn(async move {
                let guard = client.lock("between").acquire().await.expect("no error");
                guard.release().await.expect("it is ours");
                let got = client.lock("later").try_acquire().await;
                got.expect("there is a master by now").is_some()
            })
        });
        topology.until_not(old).await;
        let mut granted = false;
        for call in calls {
            granted |= call.await.expect("no panic");
        }
        assert!(granted);
    });
}

#[test]
fn no_caller_waits_for_a_hung_master() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = connect(&topology).await;
        let guard = client.lock("frozen").acquire().await.expect("it is free");
        let old = topology.master();
        // All kinds of connections exist: also to subscribe, and to watch.
        let waiting = tokio::spawn(client.lock("frozen").acquire());
        let other = connect(&topology).await;
        let listening = tokio::spawn(other.lock("frozen").acquire());
        until_subscribed(old, "frozen").await;
        let mut watch = client.admin().watch("*");
        watch.next().await.expect("it sees the lock");
        assert!(client_connections(old) > 3);
        tokio::time::sleep(Duration::from_secs(1)).await;
        old.stop_process();
        // The call is in flight when the master is replaced: it ends like a call whose reply was lost, long before its deadline.
        let begun = Instant::now();
        let lock = client.lock("another");
        let asking = tokio::spawn(async move { lock.try_acquire().await });
        let new = topology.until_not(old).await;
        let replaced = begun.elapsed();
        let outcome = timeout(Duration::from_secs(1), asking).await;
        let outcome = outcome.expect("at once").expect("no panic");
        let error = outcome.expect_err("nobody knows what became of it");
        assert!(error.is_transient(), "{error}");
        assert!(replaced < PATIENCE / 2, "{replaced:?}");
        until_left(old).await;
        until_subscribed(new, "frozen").await;
        drop(guard);
        tokio::join!(passes(waiting), passes(listening));
        drop(watch);
        old.continue_process();
        topology.until_settled().await;
        assert_eq!(client_connections(old), 0);
        assert!(client_connections(new) > 0);
    });
}

#[test]
fn without_scripts_a_lock_is_kept_and_waited_for_through_a_failover() {
    simulated(async || {
        let topology = Topology::start().await;
        let url = topology.url() + "?scripts=off";
        let (holder, waiter) = (
            patient(&url).connect().await.expect("it is up"),
            patient(&url).connect().await.expect("it is up"),
        );
        let locks = [&holder, &waiter].map(|client| client.lock("plain"));
        kept_and_waited_for(&topology, locks).await;
        let locks = [&holder, &waiter].map(|client| client.simple_lock("simple"));
        kept_and_waited_for(&topology, locks).await;
    });
}

async fn kept_and_waited_for<K: Send + Sync + 'static>(
    topology: &Topology,
    [lock, next]: [Lock<K>; 2],
) {
    topology.until_settled().await;
    let guard = lock.acquire().await.expect("it is free");
    let waiting = tokio::spawn(next.acquire());
    let (old, new) = topology.fail_over().await;
    until_left(old).await;
    assert!(!waiting.is_finished(), "it is held");
    guard.release().await.expect("it is still ours");
    let next = timeout(PATIENCE, waiting).await.expect("it is free");
    let next = next.expect("no panic").expect("no error");
    next.release().await.expect("it is ours");
    assert_eq!(held_at(new), Vec::<String>::new());
}
