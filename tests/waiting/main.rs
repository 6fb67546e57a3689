//! Waiting: no message, connection or server that gets lost makes a waiter hang, nobody waits longer
//! than it said, and everyone gets a turn.

#![cfg(feature = "simulation")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/simulated/mod.rs"]
mod support;

mod deadlines;
mod fairness;
mod handoff;
mod hints;
mod lost_messages;
mod outages;

use std::time::Duration;

use distlock::{Client, ClientBuilder, Guard, Lease, Lock};

use support::{RedisServer, builder, eventually};

/// A server on a busy machine is slow to answer, and not down.
fn patient(url: &str) -> ClientBuilder {
    builder(url)
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
}

async fn connect(url: &str) -> Client {
    patient(url).connect().await.expect("the server is up")
}

/// A lease so long that only a message or a bounded sleep can explain a quick grant.
fn long(lock: Lock) -> Lock {
    lock.with_lease(Lease::KeepAlive(Duration::from_secs(60)))
}

/// Lets somebody hold the lock who is none of ours and tells nobody when it goes.
fn hold_as_stranger(server: &RedisServer, name: &str, ttl: Duration) {
    server.cmd(&["HSET", name, STRANGER, "1"]);
    server.cmd(&["PEXPIRE", name, &ttl.as_millis().to_string()]);
}

/// As Redisson gives a lock back.
fn release_as_stranger(server: &RedisServer, name: &str) {
    assert_eq!(
        server.query::<u32>(&["DEL", name]),
        1,
        "the stranger had it"
    );
    server.cmd(&["PUBLISH", &channel(name), "0"]);
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// How many connections listen for a lock's release.
fn listeners(server: &RedisServer, name: &str) -> u64 {
    let (_, count): (String, u64) = server.query(&["PUBSUB", "NUMSUB", &channel(name)]);
    count
}

async fn until_listeners(server: &RedisServer, name: &str, count: u64) {
    eventually(PATIENCE, &format!("{count} listeners"), async || {
        listeners(server, name) == count
    })
    .await;
}

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> u64 {
    server.commandstats("evalsha") + server.commandstats("eval")
}

async fn give_back(guard: Guard) {
    guard.release().await.expect("it is still ours");
}

const STRANGER: &str = "5b3e1d7c-0000-4000-8000-000000000000:1";
/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much later than planned things may happen, in the machine's time.
const SLACK: Duration = Duration::from_millis(1000);
