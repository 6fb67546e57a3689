//! A cluster whose slots and masters change hands while locks are held and waited for: nothing is lost that was replicated,
//! nobody hangs, and nobody is told where a slot is on its way to.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod delay;
mod doctor;
mod documents;
mod hammer;
mod held;
mod moving;
mod sharded;
mod slots;
mod slow;
mod waiting;

use std::time::Duration;

use distlock::{Client, ClientBuilder, Lease};

use support::Cluster;

/// A server on a busy machine is slow to answer, and not down; and no lease ends before anybody has lost patience.
fn patient(url: &str) -> ClientBuilder {
    Client::builder(url)
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .default_lease(Lease::KeepAlive(5 * PATIENCE))
}

async fn connect(cluster: &Cluster) -> Client {
    let connected = patient(&cluster.url()).connect().await;
    connected.expect("the cluster is up")
}

/// Runs what blocks; the other tasks go on elsewhere.
fn beside<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// The ways in which messages can be sent there.
fn manners(cluster: &Cluster) -> Vec<&'static str> {
    let mut manners = vec!["", "?pubsub=plain", "?pubsub=both", "?pubsub=sharded"];
    if !beside(|| cluster.is_sharded()) {
        manners.truncate(2);
    }
    manners
}

/// Every key but the marks that refuse what was given up, and end by themselves.
fn held_in(cluster: &Cluster) -> Vec<String> {
    let mut keys = cluster.keys();
    keys.retain(|key| !key.starts_with("distlock_undone:"));
    keys
}

/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
