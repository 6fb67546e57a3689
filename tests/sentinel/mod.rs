//! A master behind sentinels: the client finds it, follows it, and believes no sentinel that errs.

mod addresses;
mod delay;
mod doctor;
mod documents;
mod held;
mod inspection;
mod liars;
mod waiting;

use std::time::Duration;

use distlock::{Client, ClientBuilder, Lease};

use crate::support::{RedisServer, Topology, builder};

/// Longer than any failover takes, also where the sentinels disagree about which one is to promote a replica.
fn patient(url: &str) -> ClientBuilder {
    builder(url)
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .default_lease(Lease::KeepAlive(5 * PATIENCE))
}

async fn connect(topology: &Topology) -> Client {
    let connected = patient(&topology.url()).connect().await;
    connected.expect("the master is up")
}

/// Has each sentinel greet so many milliseconds late.
fn slow_to_greet(topology: &Topology, millis: [u64; 3]) {
    for (sentinel, millis) in topology.told().iter().zip(millis) {
        sentinel.set_greeting_delay(Duration::from_millis(millis));
    }
}

/// Every key but the marks that refuse what was given up, and end by themselves.
fn held_at(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys();
    keys.retain(|key| !key.starts_with("distlock_undone:"));
    keys
}

/// Only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
