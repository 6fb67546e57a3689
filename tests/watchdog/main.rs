//! The watchdog keeps leases alive: whatever blocks the caller, whatever the server answers, for a
//! thousand locks at once, and never for one that is over.

#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "whether a lease is kept alive shows in real time"
)]

#[path = "../support/mod.rs"]
mod support;

mod batches;
mod blocked;
mod endings;
mod journal;
mod nested;
mod replies;
mod retries;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use distlock::{Client, Error, Guard, Lease, Lock};

use self::journal::Journal;
use self::support::{ChaosProxy, Fault, Match, RedisServer, eventually};

/// For tests that do nothing to the server but use it; each has lock names of its own.
static SHARED: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

async fn connect(url: &str) -> Client {
    connect_with(url, LEASE, PATIENCE).await
}

async fn connect_with(url: &str, lease: Duration, command: Duration) -> Client {
    Client::builder(url)
        .default_lease(Lease::KeepAlive(lease))
        .command_timeout(command)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("the server is up")
}

/// Takes it, also where a busy machine is too slow for a short command time-out: nobody has refused it then.
async fn taken(lock: &Lock) -> Guard {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match lock.acquire().await {
            Ok(guard) => return guard,
            Err(Error::Timeout { .. }) if Instant::now() < give_up => {}
            Err(error) => panic!("nobody has it: {error}"),
        }
    }
}

/// Waits for the next renewal, or fails with what ended the hold.
async fn renewed<K>(guard: &Guard<K>) {
    let before = guard.valid_until();
    eventually(PATIENCE, "it is renewed", async || {
        guard.check().expect("it is renewed in time");
        // Far less than a renewal adds.
        guard.valid_until() > before + Duration::from_millis(20)
    })
    .await;
}

/// Two thirds of it are what a busy machine may cost without costing the lock.
const LEASE: Duration = Duration::from_secs(6);
/// As long as a renewal may take: the next one is due then.
const COMMAND: Duration = Duration::from_secs(1);
/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
