//! What is held stays held, or its holder is told.

use std::time::Duration;

use distlock::{Durability, Error, Lease, LostReason};

use super::support::{Cluster, eventually};
use super::{PATIENCE, beside, connect, held_in, patient};

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_survives_a_failover_and_is_given_back_to_the_new_master() {
    let cluster = Cluster::start();
    let client = connect(&cluster).await;
    // So long that it is not lost on a busy machine; it is renewed after a third of it.
    let lease = Lease::KeepAlive(Duration::from_secs(30));
    let lock = client.lock("ordered").with_lease(lease);
    let guard = lock.acquire().await.expect("it is free");
    let new = beside(|| cluster.fail_over(cluster.owner("ordered")));
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
    assert!(guard.is_held());
    guard.release().await.expect("it is still ours");
    assert_eq!(beside(|| held_in(&cluster)), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_survives_the_death_of_its_master() {
    let cluster = Cluster::start();
    let (client, other) = (connect(&cluster).await, connect(&cluster).await);
    let guard = client.lock("killed").acquire().await.expect("it is free");
    let old = beside(|| cluster.owner("killed"));
    beside(|| cluster.kill(old));
    let busy = other.lock("killed").try_acquire().await;
    assert!(busy.expect("another has its place").is_none());
    assert!(guard.is_held());
    guard.release().await.expect("it is still ours");
    let next = other.lock("killed").acquire().await;
    next.expect("it is free")
        .release()
        .await
        .expect("it is ours");
    // Back again it is a replica.
    beside(|| {
        old.restart();
        cluster.until_settled();
    });
    let guard = client.lock("killed").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
}

/// At once, not when the lease would have been renewed.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_the_new_master_has_never_heard_of_is_told() {
    let cluster = Cluster::start();
    let client = connect(&cluster).await;
    let lease = Lease::Fixed(Duration::from_secs(600));
    let (old, replica) = beside(|| {
        let old = cluster.owner("forgotten");
        (old, cluster.until_replicated(old))
    });
    beside(|| {
        replica.stop_process();
        // What was sent to it would be waiting for it.
        old.cmd(&["CLIENT", "KILL", "TYPE", "replica"]);
    });
    let lock = client.lock("forgotten").with_lease(lease);
    let guard = lock.acquire().await.expect("it is free");
    beside(|| {
        old.kill();
        replica.continue_process();
        cluster.until_master(replica);
    });
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    let lost = lost.expect("it is told").expect("it was held");
    assert_eq!(lost.reason, LostReason::Removed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_counts_only_when_the_slots_own_replica_has_it() {
    let cluster = Cluster::start();
    let durability = Durability::Replicas {
        acks: 1,
        timeout: Duration::from_secs(1),
    };
    let builder = patient(&cluster.url()).durability(durability);
    let client = builder.connect().await.expect("the cluster is up");
    eventually(PATIENCE, "a busy replica has it in time", async || {
        let guard = client.lock("kept").acquire().await;
        if let Ok(guard) = guard {
            guard.release().await.expect("it is ours");
            return true;
        }
        assert!(
            matches!(guard, Err(Error::NotReplicated { .. })),
            "{guard:?}"
        );
        false
    })
    .await;
    let replica = beside(|| cluster.replica_of(cluster.owner("kept")));
    beside(|| replica.stop_process());
    let refused = client.lock("kept").try_acquire().await;
    assert!(
        matches!(refused, Err(Error::NotReplicated { .. })),
        "{refused:?}"
    );
    beside(|| replica.continue_process());
    eventually(PATIENCE, "what did not count was undone", async || {
        matches!(client.lock("kept").try_acquire().await, Ok(Some(_)))
    })
    .await;
}
