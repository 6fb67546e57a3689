//! A cluster whose slots and masters change while locks are held and waited for: no replicated state is lost, no call hangs, and no caller
//! sees where a slot is being moved.

mod addresses;
mod doctor;
mod failovers;
mod messages;
mod moving;
mod slots;
mod slow;
mod users;

use std::time::Duration;

use distlock::{Client, Guard, Lease};

use crate::support::{Cluster, builder};

async fn connect(cluster: &Cluster) -> Client {
    connect_to(&cluster.url()).await
}

async fn connect_to(url: &str) -> Client {
    builder(url).connect().await.expect("the cluster is up")
}

async fn release(guard: Guard) {
    guard.release().await.expect("it is still ours");
}

/// The ways in which messages can be sent in a cluster.
const PUBSUB_MODES: [&str; 4] = ["", "?pubsub=plain", "?pubsub=both", "?pubsub=sharded"];

/// So long that no client polls because it ends.
const LONG: Lease = Lease::Fixed(Duration::from_secs(3600));
