//! What is held stays held.

use std::time::Duration;

use distlock::Lease;

use super::support::sentinel::visitors;
use super::support::{Topology, eventually};
use super::{PATIENCE, beside, connect, connections_to, held_at, until_left};

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_survives_a_failover_and_is_given_back_to_the_new_master() {
    let topology = Topology::start();
    let client = connect(&topology).await;
    // So long that it is not lost on a busy machine; it is renewed after a third of it.
    let lease = Lease::KeepAlive(Duration::from_secs(30));
    let lock = client.lock("ordered").with_lease(lease);
    let guard = lock.acquire().await.expect("it is free");
    let (old, new) = beside(|| topology.fail_over());
    // It lives on as a master for a while, for whoever has not heard.
    until_left(old).await;
    assert!(guard.is_held());
    // Down from thirty seconds, and up again.
    for (bounds, what) in [
        (0..27_000, "time passes"),
        (27_500..30_001, "it is renewed there"),
    ] {
        eventually(PATIENCE, what, async || {
            bounds.contains(&beside(|| new.pttl("ordered")))
        })
        .await;
    }
    guard.release().await.expect("it is still ours");
    assert_eq!(beside(|| held_at(new)), Vec::<String>::new());
    assert!(beside(|| visitors(new)) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_survives_the_death_of_the_master() {
    let topology = Topology::start();
    let client = connect(&topology).await;
    let lock = client.lock("killed");
    let guard = lock.acquire().await.expect("it is free");
    let (old, new) = beside(|| topology.kill_master());
    let other = connect(&topology).await;
    let busy = other.lock("killed").try_acquire().await;
    assert!(busy.expect("the new master is up").is_none());
    assert!(guard.is_held());
    guard.release().await.expect("it is still ours");
    assert_eq!(beside(|| held_at(new)), Vec::<String>::new());
    // Back again it is a replica, and nobody of ours comes.
    beside(|| {
        old.restart();
        topology.until_settled();
    });
    let guard = lock.acquire().await.expect("it is free");
    assert_eq!(connections_to(old.port()), 0);
    guard.release().await.expect("it is still ours");
}
