//! Redisson's format, byte for byte, and Redisson itself as a peer on the same server.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use crate::support;

mod counting;
mod fair;
mod fenced;
mod format;
mod latch;
mod lost_number;
mod peers;
mod rw;
mod rw_defects;
mod rw_peers;
mod rw_undone;
mod rw_writers;
mod semaphore;
mod turns;
mod without_end;

use std::time::Duration;

use distlock::{Client, Guard, Lease};

use support::{RedisServer, eventually};

/// A server on a busy machine is slow to answer, and not down.
async fn connect(server: &RedisServer) -> Client {
    connect_to(&server.url()).await
}

/// The same by way of a proxy.
async fn connect_to(url: &str) -> Client {
    let builder = Client::builder(url).command_timeout(PATIENCE);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}

/// Takes a free lock until further notice: renewals are none of the test's business.
async fn hold(client: &Client, name: &str) -> Guard {
    let lock = client.lock(name).with_lease(Lease::Fixed(LEASE));
    let taken = lock.try_acquire().await.expect("the server answers");
    taken.expect("nobody else holds it")
}

/// Nothing may be left when everyone has gone. The caller has seen that there was something.
async fn leaves_nothing(server: &RedisServer, client: Client) {
    eventually(PATIENCE, "nobody listens any more", async || {
        server.pubsub_channels().is_empty()
    })
    .await;
    eventually(PATIENCE, "no key is left", async || {
        server.keys().is_empty()
    })
    .await;
    client.close().await.expect("there is nothing to give back");
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

/// A TTL is counted down from what was set a moment ago.
#[track_caller]
fn assert_just_set(pttl: i64, lease: Duration) {
    let lease = i64::try_from(lease.as_millis()).expect("a test's lease is short");
    let moment = i64::try_from(A_MOMENT.as_millis()).expect("a few seconds");
    assert!(pttl <= lease, "{pttl} ms of {lease}");
    assert!(pttl > lease - moment, "{pttl} ms of {lease}");
}

const LEASE: Duration = Duration::from_secs(60);
/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Ago: shorter than any lease that is looked at.
const A_MOMENT: Duration = Duration::from_secs(10);
/// How long somebody waits who is to wait in vain: what is taken has been said by then on a busy machine, too.
const IN_VAIN: Duration = Duration::from_secs(4);
