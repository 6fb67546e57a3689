//! A master that has been the one for less than a lease grants nothing new, and costs the others nothing.

use std::time::{Duration, Instant};

use distlock::{Client, Lease, MultiLock};

use super::support::{Cluster, RedisServer, eventually};
use super::{PATIENCE, beside, patient};

/// A lease as long as this survives a busy machine.
const DELAY: Duration = Duration::from_secs(8);
const LEASE: Lease = Lease::KeepAlive(DELAY);
/// Servers count whole seconds.
const GRAIN: Duration = Duration::from_secs(1);

async fn connect(cluster: &Cluster) -> Client {
    let builder = patient(&cluster.url())
        .default_lease(LEASE)
        .failover_delay(DELAY);
    builder.connect().await.expect("the cluster is up")
}

/// Whoever has just been started waits as well.
async fn old_enough(cluster: &Cluster) {
    eventually(PATIENCE, "all have been up for long enough", async || {
        let servers = cluster.servers().iter();
        beside(|| servers.map(RedisServer::up_for).min()) > Some(DELAY + GRAIN)
    })
    .await;
}

/// Whether it is granted at once.
async fn is_granted(client: &Client, name: &str) -> bool {
    let tried = client.lock(name).try_acquire().await.expect("it is up");
    if let Some(guard) = tried {
        guard.release().await.expect("it is ours");
        return true;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_its_slots_alone_are_waited_for() {
    let cluster = Cluster::start();
    old_enough(&cluster).await;
    let client = connect(&cluster).await;
    let old = beside(|| cluster.owner("held").port());
    let [a, b] = [true, false].map(|there| {
        let mut names = (0..).map(|number| format!("name-{number}"));
        let name = names.find(|name| beside(|| (cluster.owner(name).port() == old) == there));
        name.expect("there is one")
    });
    let lock = client.lock("held").with_owner(&client.new_owner());
    let guard = lock.acquire().await.expect("it is free");
    assert!(is_granted(&client, &a).await, "all have been up for long");

    let promoted = beside(|| {
        let promoted = Instant::now();
        cluster.fail_over(cluster.owner("held"));
        promoted
    });
    // What is held stays held, and the others go on.
    lock.acquire()
        .await
        .expect("it is ours")
        .release()
        .await
        .expect("ours");
    assert!(is_granted(&client, &b).await);
    let several = MultiLock::new([
        client.lock(format!("{{{a}}}1")).into(),
        client.lock(format!("{{{a}}}2")).into(),
    ]);
    if promoted.elapsed() < DELAY / 2 {
        assert!(!is_granted(&client, &a).await, "it may be another's");
        assert!(several.try_acquire().await.expect("it is up").is_none());
    }
    let new = client.lock(&*a).acquire().await.expect("it is waited for");
    assert!(promoted.elapsed() >= DELAY, "{:?}", promoted.elapsed());
    new.release().await.expect("it is ours");
    guard.release().await.expect("it was ours all the while");

    // Whoever comes later need not wait again, and is not shown how that is known.
    let later = connect(&cluster).await;
    assert!(is_granted(&later, &a).await, "it has been known for long");
    assert!(several.try_acquire().await.expect("it is up").is_some());
    let seen = later.admin().list("*").await;
    let seen = seen.expect("it is up");
    assert!(seen.is_empty(), "{seen:?}");
}

/// What is known of a promoted master is in one of its slots.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_ever_where_that_slot_has_gone() {
    let cluster = Cluster::start();
    old_enough(&cluster).await;
    let name = "moving";
    let (promoted, other) = beside(|| {
        let promoted = cluster.fail_over(cluster.owner(name));
        let mut others = cluster.masters().into_iter();
        let other = others.find(|other| other.port() != promoted.port());
        (promoted, other.expect("there are three"))
    });
    let client = connect(&cluster).await;
    let guard = client.lock(name).acquire().await.expect("it is waited for");
    guard.release().await.expect("it is ours");
    beside(|| {
        let mut records = promoted.keys().into_iter();
        let record = records.find(|key| key.starts_with("distlock_promoted:"));
        let slot = cluster.slot(&record.expect("it is written down"));
        cluster.migrate(slot, other);
        cluster.until_settled();
    });
    assert!(is_granted(&client, name).await, "it has not been another's");
    let later = connect(&cluster).await;
    let waited = later.lock(name).acquire_timeout(PATIENCE).await;
    let guard = waited.expect("it is up").expect("nobody waits for ever");
    guard.release().await.expect("it is ours");
}
