//! Calls that wait until a server has been the master for long enough, or until it accepts writes.

use std::time::Duration;

use distlock::Lease;

use super::{PATIENCE, patient};
use crate::support::hammer::Hammer;
use crate::support::sentinel::{MASTER, until_left};
use crate::support::{RedisServer, Topology, eventually, simulated};

#[test]
fn a_call_that_comes_between_two_masters_waits_for_the_next() {
    simulated(async || {
        let topology = Topology::start().await;
        let delay = Duration::from_secs(6);
        let builder = patient(&topology.url())
            .default_lease(Lease::KeepAlive(delay))
            .failover_delay(delay);
        let client = builder.connect().await.expect("it is up");
        let held = client.lock("held").acquire().await;
        let held = held.expect("it is waited for");
        held.release().await.expect("it is ours");
        let old = topology.master();
        old.kill();
        until_left(old).await;
        let lock = client.lock("tried");
        let tried = tokio::spawn(async move { lock.try_acquire().await });
        topology.until_not(old).await;
        let tried = tried.await.expect("no panic");
        assert!(tried.expect("the next is waited for").is_none());
        let got = client.lock("between").acquire_timeout(PATIENCE).await;
        let got = got.expect("the next is waited for").expect("it is free");
        got.release().await.expect("it is ours");
    });
}

#[test]
fn no_caller_gets_a_read_only_error() {
    simulated(async || {
        let topology = Topology::start().await;
        let mut clients = Vec::new();
        for url in [topology.url(), topology.url() + "?scripts=off"] {
            // A hold whose outcome is unknown, and which is not undone, expires in the end.
            let lease = Lease::KeepAlive(Duration::from_secs(30));
            let builder = patient(&url).default_lease(lease);
            clients.push(builder.connect().await.expect("it is up"));
        }
        let unspoken = ["readonly", "read only", "replica", "replicas"].as_slice();
        let mut hammer = Hammer::start(clients, unspoken);
        for _ in 0..3 {
            let (old, replicas) = (topology.master(), topology.replicas());
            topology.sentinels()[0].cmd(&["SENTINEL", "FAILOVER", MASTER]);
            let is_master = |server: &&&RedisServer| server.simulated().follows().is_none();
            eventually(PATIENCE, "a replica is promoted", async || {
                replicas.iter().any(|server| is_master(&server))
            })
            .await;
            let new = replicas.iter().find(is_master).expect("there is one");
            // Sentinels demote the old master seconds later. A client that still takes it for the master meets a replica.
            old.simulated().follow(new.simulated(), Duration::ZERO);
            topology.until_not(old).await;
            hammer.goes_on().await;
            topology.until_settled().await;
        }
        hammer.end().await;
    });
}
