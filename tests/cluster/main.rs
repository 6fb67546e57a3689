//! A cluster whose slots and masters change hands while locks are held and waited for.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/mod.rs"]
mod support;

mod basics;

use std::time::Duration;

use distlock::{Client, ClientBuilder};

use support::Cluster;

/// A server on a busy machine is slow to answer, and not down.
fn patient(url: &str) -> ClientBuilder {
    Client::builder(url)
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
}

async fn connect(cluster: &Cluster) -> Client {
    let connected = patient(&cluster.url()).connect().await;
    connected.expect("the cluster is up")
}

/// Runs what blocks; the other tasks go on elsewhere.
fn beside<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
