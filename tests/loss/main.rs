//! A holder is told when it loses the lock: in time, with the right reason, whatever took it.
//!
//! "Exactly at `valid_until`" is checked by looking without pause around that moment ([`observer`]);
//! everything that needs a thread to wake up gets some time for it.

#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "when a lease ends shows in real time"
)]

#[path = "../support/mod.rs"]
mod support;

mod exact;
mod fixed;
mod observer;
mod outage;
mod refused;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use distlock::{Client, Error, Guard, Lease, Lock};

use self::observer::Observed;
use self::support::{ChaosProxy, RedisServer, eventually};

/// For tests that do nothing to the server but use it; each has lock names of its own.
static SHARED: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

async fn connect(url: &str) -> Client {
    Client::builder(url)
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(COMMAND)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("the server is up")
}

/// The lock. A busy machine may be too slow for the command time-out of these tests; the store has not
/// refused it then.
async fn acquire(lock: Lock) -> Guard {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match lock.acquire().await {
            Ok(guard) => return guard,
            Err(Error::Timeout { .. }) if Instant::now() < give_up => {}
            Err(error) => panic!("nobody has it: {error}"),
        }
    }
}

/// The same client gets the same name again, at once, and it is kept alive.
async fn assert_can_be_locked_again(client: &Client, server: &RedisServer, name: &str) {
    let again = acquire(client.lock(name)).await;
    let granted = again.valid_until();
    eventually(PATIENCE, "it is renewed", async || {
        again.check().expect("nobody takes it");
        again.valid_until() > granted + LEASE / 9
    })
    .await;
    let owners = server.hgetall(name);
    assert_eq!(owners.keys().collect::<Vec<_>>(), [&again.owner()]);
    again.release().await.expect("it is ours");
    assert_eq!(server.pttl(name), GONE);
}

/// What `PTTL` says of a key that is not there.
const GONE: i64 = -2;
/// Two thirds of it are what a busy machine may cost without costing the lock.
const LEASE: Duration = Duration::from_secs(9);
const COMMAND: Duration = Duration::from_secs(2);
/// A refusal is heard of by then: a renewal is sent every third of a lease, and answered in time.
const ONE_PERIOD: Duration = Duration::from_secs(3 + 2);
/// How late news may be on a machine that has other things to do.
const LATE: Duration = Duration::from_secs(4);
/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
