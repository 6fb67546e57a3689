//! The fair lock under contention: the order in which the waiters of several processes are granted it, and the cost of each hand-off.
//!
//! A test starts other processes from its own executable: they enter at [`worker`].

#![cfg(all(feature = "redis", feature = "sqlite", target_os = "linux"))]
#![expect(
    clippy::disallowed_methods,
    reason = "processes are killed and awaited in real time"
)]

#[path = "../support/mod.rs"]
mod support;

mod cost;
mod embedded;
mod history;
mod messages;
mod monitor;
mod order;
mod recovery;
mod worker;

use std::time::Duration;

use distlock::{Client, Fair, Guard, Lease};

use self::support::{RedisServer, eventually, process};

/// The entry of the processes that the tests start. It tests nothing by itself and is ignored, so that it is not counted as a test that
/// passed.
#[test]
#[ignore = "no test: the processes that the tests start begin here"]
fn worker() {
    if let Some(role) = process::role() {
        worker::run(&role);
    }
}

async fn connect(url: &str) -> Client {
    Client::builder(url)
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("the store is there")
}

async fn take(client: &Client) -> Guard<Fair> {
    let taken = client.fair_lock(NAME).try_acquire().await;
    taken.expect("the store answers").expect("it is free")
}

/// Returns the waiters in the queue, the head first.
fn line(server: &RedisServer) -> Vec<String> {
    server.query(&["LRANGE", QUEUE, "0", "-1"])
}

async fn until_queued(server: &RedisServer, length: usize) {
    eventually(PATIENCE, &format!("{length} stand in line"), async || {
        server.query::<usize>(&["LLEN", QUEUE]) == length
    })
    .await;
}

/// Checks that only tombstones of cancelled requests are left, which expire by themselves.
async fn leaves_nothing(server: &RedisServer) {
    eventually(PATIENCE, "nobody listens any more", async || {
        server.pubsub_channels().is_empty()
    })
    .await;
    let others = || {
        let mut keys = server.keys();
        keys.retain(|key| !key.starts_with("distlock_undone:"));
        keys
    };
    let clean = async || others().is_empty();
    eventually(PATIENCE, "no key is left", clean).await;
}

const NAME: &str = "stock";
const QUEUE: &str = "redisson_lock_queue:{stock}";
const TIMEOUT: &str = "redisson_lock_timeout:{stock}";
const ALIVE: &str = "distlock_alive:{stock}";
const CHANNEL: &str = "redisson_lock__channel:{stock}";
/// Longer than any test: no lease expires because the machine stands still.
const LEASE: Duration = Duration::from_secs(600);
/// Upper bound for any wait on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
