//! Failovers: locks stay held, or their holders are told that they are lost; and a new master may wait before it grants anything.

use std::time::Duration;

use distlock::{Durability, Error, Lease, LostReason, MultiLock};
use distlock_sim::slot_of;
use tokio::time::{Instant, sleep, timeout};

use super::{PUBSUB_MODES, connect, release};
use crate::support::hammer::Hammer;
use crate::support::{Cluster, PATIENCE, builder, eventually, simulated};

#[test]
fn a_held_lock_survives_a_failover_and_is_renewed_and_released_at_the_new_master() {
    simulated(async || {
        let cluster = Cluster::start();
        let client = connect(&cluster).await;
        let lease = Lease::KeepAlive(Duration::from_secs(30));
        let lock = client.lock("ordered").with_lease(lease);
        let guard = lock.acquire().await.expect("it is free");
        let new = cluster.fail_over("ordered");
        sleep(Duration::from_secs(41)).await;
        let left = cluster.redis()[new].pttl("ordered");
        assert!((27_000..=30_000).contains(&left), "{left}");
        assert!(guard.is_held());
        release(guard).await;
        assert_eq!(cluster.held(), Vec::<String>::new());
    });
}

#[test]
fn a_held_lock_survives_the_crash_of_its_master() {
    simulated(async || {
        let cluster = Cluster::start();
        let (client, other) = (connect(&cluster).await, connect(&cluster).await);
        let guard = client.lock("killed").acquire().await.expect("it is free");
        let (old, _) = cluster.kill_master("killed").await;
        let busy = other.lock("killed").try_acquire().await;
        assert!(busy.expect("another has its place").is_none());
        assert!(guard.is_held());
        release(guard).await;
        release(other.lock("killed").acquire().await.expect("it is free")).await;
        // The old master comes back as a replica.
        cluster.revive(old, true);
        cluster.settled().await;
        release(client.lock("killed").acquire().await.expect("it is free")).await;
    });
}

/// The loss is reported at once, not when the lease would have been renewed.
#[test]
fn a_holder_unknown_to_the_new_master_is_notified() {
    simulated(async || {
        let cluster = Cluster::start();
        let client = connect(&cluster).await;
        let old = cluster.node_of("forgotten");
        cluster.cut_replication(cluster.replicas_of(old)[0], true);
        let lease = Lease::Fixed(Duration::from_secs(600));
        let lock = client.lock("forgotten").with_lease(lease);
        let guard = lock.acquire().await.expect("it is free");
        cluster.kill(old);
        cluster.successor("forgotten", old).await;
        let lost = timeout(Duration::from_secs(5), guard.lost()).await;
        let lost = lost.expect("it is told").expect("it was held");
        assert_eq!(lost.reason, LostReason::Removed);
    });
}

#[test]
fn a_grant_counts_only_when_a_replica_of_its_slot_has_it() {
    simulated(async || {
        let cluster = Cluster::start();
        let durability = Durability::Replicas {
            acks: 1,
            timeout: Duration::from_secs(1),
        };
        let builder = builder(&cluster.url()).durability(durability);
        let client = builder.connect().await.expect("the cluster is up");
        release(client.lock("kept").acquire().await.expect("it is free")).await;
        let replica = cluster.replicas_of(cluster.node_of("kept"))[0];
        cluster.cut_replication(replica, true);
        let refused = client.lock("kept").try_acquire().await;
        assert!(
            matches!(refused, Err(Error::NotReplicated { .. })),
            "{refused:?}"
        );
        cluster.cut_replication(replica, false);
        eventually(PATIENCE, "what did not count was undone", async || {
            matches!(client.lock("kept").try_acquire().await, Ok(Some(_)))
        })
        .await;
    });
}

const DELAY: Duration = Duration::from_secs(30);

async fn connect_with_delay(cluster: &Cluster) -> distlock::Client {
    let builder = builder(&cluster.url()).default_lease(Lease::KeepAlive(DELAY));
    let connected = builder.failover_delay(DELAY).connect().await;
    connected.expect("the cluster is up")
}

/// Returns whether the lock is granted at once.
async fn is_granted(client: &distlock::Client, name: &str) -> bool {
    let tried = client.lock(name).try_acquire().await.expect("it is up");
    let is_granted = tried.is_some();
    if let Some(guard) = tried {
        release(guard).await;
    }
    is_granted
}

#[test]
fn after_a_failover_only_its_slots_are_delayed() {
    simulated(async || {
        let cluster = Cluster::start();
        sleep(DELAY * 2).await;
        let client = connect_with_delay(&cluster).await;
        let old = cluster.node_of("held");
        let (here, elsewhere) = (
            cluster.name_at(old),
            cluster.name_at(cluster.another_than(old)),
        );
        let lock = client.lock("held").with_owner(&client.new_owner());
        let guard = lock.acquire().await.expect("it is free");
        assert!(
            is_granted(&client, &here).await,
            "all have been up for long"
        );

        cluster.fail_over("held");
        let promoted = Instant::now();
        // A hold stays held, and the other masters go on.
        release(lock.acquire().await.expect("it is ours")).await;
        assert!(is_granted(&client, &elsewhere).await);
        let several = ["1", "2"].map(|name| client.lock(format!("{{{here}}}{name}")).into());
        let several = MultiLock::new(several);
        assert!(!is_granted(&client, &here).await, "it may be another's");
        assert!(several.try_acquire().await.expect("it is up").is_none());
        let new = client.lock(&*here).acquire().await;
        let new = new.expect("it is waited for");
        let waited = promoted.elapsed();
        // Servers count whole seconds.
        let expected = DELAY..DELAY + Duration::from_secs(3);
        assert!(expected.contains(&waited), "{waited:?}");
        release(new).await;
        release(guard).await;

        // A later client need not wait again, and its listing does not contain the record of the promotion.
        let later = connect_with_delay(&cluster).await;
        assert!(is_granted(&later, &here).await);
        assert!(several.try_acquire().await.expect("it is up").is_some());
        let seen = later.admin().list("*").await.expect("it is up");
        assert!(seen.is_empty(), "{seen:?}");
    });
}

/// The record of a promotion is in one of the promoted master's slots.
#[test]
fn no_client_waits_forever_after_the_slot_of_the_promotion_record_moved() {
    simulated(async || {
        let cluster = Cluster::start();
        sleep(DELAY * 2).await;
        let promoted = cluster.fail_over("moving");
        let client = connect_with_delay(&cluster).await;
        release(client.lock("moving").acquire().await.expect("in the end")).await;
        let records = cluster.redis()[promoted].keys().into_iter();
        let mut records = records.filter(|key| key.starts_with("distlock_promoted:"));
        let record = records.next().expect("it is written down");
        cluster.migrate(slot_of(&record), cluster.another_than(promoted));
        assert!(is_granted(&client, "moving").await);
        let later = connect_with_delay(&cluster).await;
        let waited = later.lock("moving").acquire_timeout(DELAY * 2).await;
        release(waited.expect("it is up").expect("it is granted")).await;
    });
}

/// The replies of a server that received a request too early or for another server.
const UNSPOKEN: &[&str] = &[
    "ask",
    "clusterdown",
    "loading",
    "masterdown",
    "moved",
    "read only",
    "readonly",
    "replica",
    "replicas",
    "tryagain",
];

#[test]
fn no_caller_gets_a_redirection_or_cluster_error() {
    simulated(async || {
        let cluster = Cluster::start();
        let mut owners: Vec<usize> = Hammer::names().map(|name| cluster.node_of(&name)).collect();
        owners.sort_unstable();
        assert_eq!(owners, [0, 1, 2], "each master has a lock");
        let mut clients = Vec::new();
        for mode in PUBSUB_MODES {
            // A failover takes seconds: the timeout must keep a call from failing meanwhile.
            let builder = builder(&format!("{}{mode}", cluster.url()));
            let builder = builder.command_timeout(Duration::from_secs(60));
            clients.push(builder.connect().await.expect("the cluster is up"));
        }
        let mut hammer = Hammer::start(clients, UNSPOKEN);
        for name in Hammer::names() {
            cluster.fail_over(&name);
            hammer.goes_on().await;
            cluster.settled().await;
            let (old, _) = cluster.kill_master(&name).await;
            // It comes back empty, and at first with another's slots.
            cluster.revive(old, false);
            hammer.goes_on().await;
            cluster.settled().await;
        }
        hammer.end().await;
    });
}
