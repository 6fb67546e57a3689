//! Leases: the watchdog keeps them alive whatever the server replies, and never after they have expired; and a holder that loses its lock
//! is notified in time, with the reason.
//!
//! Time is virtual, so a lease that ends at `valid_until` ends at exactly that millisecond.

mod batches;
mod endings;
mod journal;
mod losses;
mod retries;

use std::time::Duration;

use distlock::{Client, Guard, Lease};

use self::journal::Journal;
use crate::support::{ChaosProxy, PATIENCE, RedisServer, builder, eventually};

/// A server behind a network, and a client that keeps its locks alive there.
struct LeaseFixture {
    server: RedisServer,
    proxy: ChaosProxy,
    journal: Journal,
    client: Client,
}

impl LeaseFixture {
    async fn new() -> Self {
        Self::with("", LEASE, COMMAND).await
    }

    /// Starts a scene with a parameter in the address, a default lease and a command time-out.
    async fn with(parameter: &str, lease: Duration, command: Duration) -> Self {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let journal = Journal::of(&proxy);
        let client = connect(&proxy.url_with(parameter), lease, command).await;
        Self {
            server,
            proxy,
            journal,
            client,
        }
    }

    async fn hold(&self, name: &str) -> Guard {
        let guard = self.client.lock(name).acquire().await;
        guard.expect("the lock is free")
    }
}

async fn connect(url: &str, lease: Duration, command: Duration) -> Client {
    let builder = builder(url).default_lease(Lease::KeepAlive(lease));
    let builder = builder.command_timeout(command).connect_timeout(PATIENCE);
    builder.connect().await.expect("the server is up")
}

/// Waits for the next renewal, or fails with the end of the hold.
async fn renewed<K>(guard: &Guard<K>) {
    let before = guard.valid_until();
    eventually(PATIENCE, "the hold is renewed", async || {
        guard.check().expect("it is renewed in time");
        guard.valid_until() > before
    })
    .await;
}

const LEASE: Duration = Duration::from_secs(9);
/// The time between two renewals.
const PERIOD: Duration = Duration::from_secs(3);
const COMMAND: Duration = Duration::from_secs(1);
/// Upper bound for a request and its reply, with a proxy in between.
const ROUND_TRIP: Duration = Duration::from_millis(250);
/// The `PTTL` of a key that does not exist.
const GONE: i64 = -2;
