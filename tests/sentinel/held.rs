//! Locks stay held through failovers.

use std::time::Duration;

use distlock::Lease;
use tokio::time::sleep;

use super::{connect, held_at};
use crate::support::sentinel::{client_connections, until_left};
use crate::support::{Topology, simulated};

#[test]
fn a_held_lock_survives_a_failover_and_is_released_at_the_new_master() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = connect(&topology).await;
        let lease = Lease::KeepAlive(Duration::from_secs(30));
        let lock = client.lock("ordered").with_lease(lease);
        let guard = lock.acquire().await.expect("it is free");
        let (old, new) = topology.fail_over().await;
        // The old master lives on as a master for a while, for a client that has not learned of the failover.
        until_left(old).await;
        sleep(Duration::from_secs(3600)).await;
        assert!(guard.is_held(), "it is renewed at the new master");
        assert!(new.pttl("ordered") > 15_000);
        guard.release().await.expect("it is still ours");
        assert_eq!(held_at(new), Vec::<String>::new());
        assert!(client_connections(new) > 0);
    });
}

#[test]
fn a_held_lock_survives_the_crash_of_the_master() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = connect(&topology).await;
        let lock = client.lock("killed");
        let guard = lock.acquire().await.expect("it is free");
        let (old, new) = topology.kill_master().await;
        let other = connect(&topology).await;
        let busy = other.lock("killed").try_acquire().await;
        assert!(busy.expect("the new master is up").is_none());
        assert!(guard.is_held());
        guard.release().await.expect("it is still ours");
        assert_eq!(held_at(new), Vec::<String>::new());
        // It comes back as a replica, and no client of this library connects to it.
        old.restart();
        topology.until_settled().await;
        let guard = lock.acquire().await.expect("it is free");
        assert_eq!(client_connections(old), 0);
        guard.release().await.expect("it is still ours");
    });
}
