//! A master behind sentinels: the client finds it, follows it, and trusts no sentinel that is wrong.

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

/// Builds a client whose timeouts are longer than any failover, even if the sentinels disagree about which one is to promote a replica.
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

/// Delays the greeting of each sentinel by this many milliseconds.
fn slow_to_greet(topology: &Topology, millis: [u64; 3]) {
    for (sentinel, millis) in topology.simulated_sentinels().iter().zip(millis) {
        sentinel.set_greeting_delay(Duration::from_millis(millis));
    }
}

/// Returns every key but the tombstones, which refuse cancelled requests and expire by themselves.
fn held_at(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys();
    keys.retain(|key| !key.starts_with("distlock_undone:"));
    keys
}

/// Upper bound for any wait; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
