//! Waiting: no lost message, connection or server makes a waiter hang, a wait ends at its deadline, and every waiter gets its turn.

mod deadlines;
mod fairness;
mod handoff;
mod killed;
mod messages;
mod order;
mod outages;
mod readers;

use std::time::Duration;

use distlock::{Client, ClientBuilder, Error, Guard, Lease, Lock};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::support::{PATIENCE, RedisServer, builder, eventually};

/// Returns options for a client whose own time-outs end no wait of a test.
fn patient(url: &str) -> ClientBuilder {
    builder(url)
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
}

async fn connect(url: &str) -> Client {
    patient(url).connect().await.expect("the server is up")
}

/// Gives a lock a lease so long that only a message or a bounded sleep can explain a quick grant.
fn long(lock: Lock) -> Lock {
    lock.with_lease(Lease::KeepAlive(Duration::from_secs(60)))
}

/// Holds the lock as another program, which notifies no waiter when its lease ends.
fn hold_as_stranger(server: &RedisServer, name: &str, ttl: Duration) {
    server.cmd(&["HSET", name, STRANGER, "1"]);
    server.cmd(&["PEXPIRE", name, &ttl.as_millis().to_string()]);
}

/// Releases a lock as Redisson does.
fn release_as_stranger(server: &RedisServer, name: &str) {
    assert_eq!(server.query::<u32>(&["DEL", name]), 1, "it was held");
    server.cmd(&["PUBLISH", &channel(name), "0"]);
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Waits until this many connections have subscribed to a lock's channel.
async fn until_listeners(server: &RedisServer, name: &str, count: u64) {
    eventually(PATIENCE, &format!("{count} listeners"), async || {
        let (_, found): (String, u64) = server.query(&["PUBSUB", "NUMSUB", &channel(name)]);
        found == count
    })
    .await;
}

/// Returns the number of scripts that the server has run.
fn scripts(server: &RedisServer) -> u64 {
    server.commandstats("evalsha") + server.commandstats("eval")
}

type Waiting = JoinHandle<Result<Guard, Error>>;

async fn granted(waiting: Waiting) -> Guard {
    let ended = timeout(PATIENCE, waiting).await;
    let guard = ended.expect("the lock is free").expect("no panic");
    guard.expect("a waiter rides through an outage")
}

async fn release(guard: Guard) {
    guard.release().await.expect("it is still ours");
}

/// Waits for all of the tasks.
async fn ended<T: 'static>(mut tasks: JoinSet<T>) -> Vec<T> {
    let mut results = Vec::new();
    while let Some(ended) = timeout(PATIENCE, tasks.join_next()).await.expect("all end") {
        results.push(ended.unwrap());
    }
    results
}

const STRANGER: &str = "5b3e1d7c-0000-4000-8000-000000000000:1";
/// Upper bound for a request and its reply, with a proxy in between.
const ROUND_TRIP: Duration = Duration::from_millis(250);
/// The longest pause in which a waiter sends no request.
const LONGEST_SLEEP: Duration = Duration::from_secs(2);
