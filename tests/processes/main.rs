//! Locks between real processes: killed, stopped, racing and forked ones.
//!
//! A test starts other processes from its own executable: they enter at [`worker`] and do what [`worker::run`] has for their role.

#![cfg(all(feature = "redis", feature = "blocking"))]
#![expect(
    clippy::disallowed_methods,
    reason = "processes are killed, stopped and awaited in real time"
)]

#[path = "../support/mod.rs"]
mod support;

mod counted;
mod counter;
mod forked;
mod killed;
#[cfg(all(feature = "sqlite", feature = "tls", target_os = "linux"))]
mod no_threads;
mod permits;
mod several;
mod stopped;
mod worker;

use std::sync::LazyLock;
use std::time::Duration;

use distlock::{Client, Lease};

use self::support::process::{self, Process};
use self::support::{RedisServer, eventually};

static SHARED: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

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
        .command_timeout(PATIENCE / 2)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("the server is up")
}

/// Two thirds of it are a margin for a busy machine, which must not lose the lock.
const LEASE: Duration = Duration::from_secs(8);
/// Upper bound for any wait on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
