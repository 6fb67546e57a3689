//! One story on a real server for each group of tests that otherwise runs under simulated time: they show that the simulated
//! server and network behave as the real ones do. The stories wait for events. Leases last for minutes, except where the
//! story is about renewals.
#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests start tasks and keep their own time"
)]

use std::time::Duration;

use distlock::{Client, ClientBuilder, Lease, QuorumLock};
use tokio::task::JoinSet;

use crate::support::{
    ChaosProxy, Fault, Match, PATIENCE, RedisServer, Script, eventually, wait_until,
};

const LONG: Lease = Lease::KeepAlive(Duration::from_secs(600));

fn patient(url: &str) -> ClientBuilder {
    Client::builder(url)
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .default_lease(LONG)
}

async fn connect(url: &str) -> Client {
    patient(url).connect().await.expect("the server runs")
}

async fn until_free(server: &RedisServer, name: &str) {
    eventually(PATIENCE, "the lock is free", async || {
        server.try_query::<u64>(&["EXISTS", name]) == Ok(0)
    })
    .await;
}

/// The story of `lost_replies`: the reply to a re-entry never arrives, since the connection is cut in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_re_entry_whose_reply_is_lost_does_not_count() {
    let server = RedisServer::start();
    Script::load_all(&server);
    let proxy = ChaosProxy::start(server.addr());
    let client = connect(&proxy.url()).await;
    let lock = client.lock("stock").with_owner(&client.new_owner());
    let guard = lock.acquire().await.expect("it is free");
    let acquires = Match::words(|words| Script::Acquire.runs(words));
    proxy.rule(acquires.nth(1), Fault::CutAfter);
    let lost = lock.acquire().await;
    assert_eq!(proxy.injected().len(), 1, "the fault took effect");
    assert!(lost.is_err(), "nobody knows whether it was granted");
    eventually(PATIENCE, "the count is what the guards say", async || {
        let counts = server.try_query::<Vec<String>>(&["HVALS", "stock"]);
        counts.is_ok_and(|counts| counts == ["1"])
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.expect("it is held");
    until_free(&server, "stock").await;
}

async fn until_heard(server: &RedisServer, name: &str) {
    let numsub = [
        "PUBSUB",
        "NUMSUB",
        &format!("redisson_lock__channel:{{{name}}}"),
    ];
    eventually(PATIENCE, "the waiter listens", async || {
        let listeners = server.try_query::<(String, u64)>(&numsub);
        listeners.is_ok_and(|(_, listeners)| listeners == 1)
    })
    .await;
}

/// The story of `waiting`: a waiter is notified by a message, and survives a restart of the server that forgets everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_notified_by_message_and_survives_a_restart_of_its_server() {
    let server = RedisServer::start();
    let (holder, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("stock").acquire().await.expect("it is free");
    let waiting = tokio::spawn(other.lock("stock").acquire());
    until_heard(&server, "stock").await;
    guard.release().await.expect("it is held");
    let second = waiting.await.expect("no panic").expect("it was released");
    second.release().await.expect("it is held");

    // The second part uses another name: the subscription of the first may still exist before the second waiter's request.
    let lost = holder.lock("shelf").acquire().await.expect("it is free");
    let waiting = tokio::spawn(other.lock("shelf").acquire());
    until_heard(&server, "shelf").await;
    tokio::task::block_in_place(|| {
        server.kill();
        server.restart();
    });
    let third = waiting.await.expect("no panic").expect("nobody has it");
    assert!(lost.release().await.is_err(), "the server forgot it");
    third.release().await.expect("it is held");
}

/// The story of `leases`: a renewed lock outlives its lease, and a holder whose key is deleted is notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_at_the_server_and_a_lost_lock_is_reported() {
    let server = RedisServer::start();
    let lease = Duration::from_secs(30);
    let builder = patient(&server.url()).default_lease(Lease::KeepAlive(lease));
    let client = builder.connect().await.expect("the server runs");
    let guard = client.lock("stock").acquire().await.expect("it is free");
    // The TTL is lowered as if most of the lease had elapsed: the next renewal restores the whole lease.
    let cut: u64 = server
        .try_query(&["PEXPIRE", "stock", "20000"])
        .expect("it runs");
    assert_eq!(cut, 1);
    eventually(PATIENCE, "it is renewed", async || {
        let left = server.try_query::<u64>(&["PTTL", "stock"]);
        left.is_ok_and(|left| left > 21_000)
    })
    .await;
    assert!(guard.is_held());
    let deleted: u64 = server.try_query(&["DEL", "stock"]).expect("it runs");
    assert_eq!(deleted, 1);
    guard.lost().await;
    assert!(!guard.is_held());
}

/// The story of `batches`: five hundred locks are acquired at once, and released at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locks_are_acquired_and_released_together() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let names: Vec<_> = (0..500).map(|number| format!("item:{number}")).collect();
    let acquires = names
        .iter()
        .map(|name| client.lock(name.as_str()).acquire());
    let guards = acquires.collect::<JoinSet<_>>().join_all().await;
    let keys = || server.try_query::<Vec<String>>(&["KEYS", "item:*"]);
    assert_eq!(keys().expect("it runs").len(), names.len());
    let releases = guards
        .into_iter()
        .map(|guard| guard.expect("it is free").release());
    for released in releases.collect::<JoinSet<_>>().join_all().await {
        released.expect("it is held");
    }
    assert_eq!(keys().expect("it runs"), Vec::<String>::new());
}

/// The story of `quorum`: one of three servers is killed while the lock is held, and the lock is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_of_real_servers_survives_the_crash_of_one() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let lock = async || {
        let mut members = Vec::new();
        for server in &servers {
            members.push(connect(&server.url()).await.lock("nightly").into());
        }
        // By default a server that has just been started has no vote for a lease.
        QuorumLock::new(members).with_longest_lease(Duration::ZERO)
    };
    let (ours, theirs) = (lock().await, lock().await);
    let guard = ours.acquire().await.expect("all servers are up");
    tokio::task::block_in_place(|| servers[0].kill());
    let busy = theirs.try_acquire().await.expect("most servers are up");
    assert!(busy.is_none() && guard.is_held());
    guard.release().await.expect("most servers are up");
    let next = theirs.acquire().await.expect("most servers are up");
    next.release().await.expect("most servers are up");
}

/// The story of `rules`: an acquire that its caller has abandoned arrives after it was undone, and is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_arrives_after_its_undo_is_refused() {
    let server = RedisServer::start();
    Script::load_all(&server);
    let proxy = ChaosProxy::start(server.addr());
    let hasty = patient(&proxy.url()).command_timeout(Duration::from_millis(500));
    let client = loop {
        // On a busy machine the connect may take longer.
        if let Ok(client) = hasty.clone().connect().await {
            break client;
        }
    };
    let acquires = Match::words(|words| Script::Acquire.runs(words));
    proxy.rule(acquires.nth(1), Fault::HoldRequest);
    let stalled = client.lock("stock").try_acquire().await;
    assert!(stalled.is_err(), "nobody answers");
    let undone = || server.try_query::<u64>(&["EXISTS", "distlock_undone:{stock}"]) == Ok(1);
    tokio::task::block_in_place(|| wait_until("it is undone", undone));
    proxy.deliver_held();
    eventually(PATIENCE, "every request is answered", async || {
        proxy.unanswered() == 0
    })
    .await;
    let held: u64 = server.try_query(&["EXISTS", "stock"]).expect("it runs");
    assert_eq!(held, 0, "the late acquire was refused");
}
