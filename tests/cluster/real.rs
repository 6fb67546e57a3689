//! One failover and one moved slot on real servers: the simulated ones are only this project's opinion of them. Nothing depends on time:
//! leases are minutes, and events are waited for. A part of the program `real`.
#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use std::time::Duration;

use distlock::{Client, Lease};
use tokio::task::block_in_place as beside;
use tokio::time::timeout;

use crate::support::{Cluster, eventually};

/// Upper bound for any wait; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
const LONG: Lease = Lease::Fixed(Duration::from_secs(3600));

async fn connect(cluster: &Cluster, pubsub: &str) -> Client {
    let builder = Client::builder(&format!("{}{pubsub}", cluster.url()));
    let builder = builder.command_timeout(PATIENCE).connect_timeout(PATIENCE);
    builder.connect().await.expect("the cluster is up")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_gets_the_lock_after_a_slot_migration_and_after_a_master_crash() {
    let cluster = beside(Cluster::start);
    let (holder, waiter) = (connect(&cluster, "").await, connect(&cluster, "").await);
    let lock = holder.lock("moved").with_lease(LONG);
    let guard = lock.acquire().await.expect("it is free");
    let waiting = {
        let lock = waiter.lock("moved").with_lease(LONG);
        tokio::spawn(async move { lock.acquire().await })
    };
    let is_sharded = beside(|| cluster.is_sharded());
    let listens = if is_sharded {
        "SHARDCHANNELS"
    } else {
        "CHANNELS"
    };
    let until_it_listens = async || {
        eventually(PATIENCE, "it listens at the lock's server", async || {
            beside(|| {
                let channels: Vec<String> = cluster.owner("moved").query(&["PUBSUB", listens]);
                !channels.is_empty()
            })
        })
        .await;
    };
    until_it_listens().await;
    beside(|| {
        let from = cluster.owner("moved").port();
        let mut others = cluster.masters().into_iter();
        let to = others.find(|master| master.port() != from);
        cluster.migrate(cluster.slot("moved"), to.expect("there are three"));
        cluster.until_settled();
    });
    until_it_listens().await;
    beside(|| cluster.kill(cluster.owner("moved")));
    until_it_listens().await;
    assert!(guard.is_held() && !waiting.is_finished());
    guard.release().await.expect("it is still ours");
    let next = timeout(PATIENCE, waiting).await.expect("it is woken");
    let next = next.expect("no panic").expect("it is free");
    next.release().await.expect("it is ours");
    // Connecting fails in a mode whose commands the server does not know; `scripts/matrix` has such servers.
    for pubsub in ["sharded", "both"] {
        let url = format!("{}?pubsub={pubsub}", cluster.url());
        let connected = Client::builder(&url)
            .connect_timeout(PATIENCE)
            .connect()
            .await;
        let refusal = connected.err().map(|error| error.to_string());
        assert_eq!(refusal.is_none(), is_sharded, "{refusal:?}");
        assert!(refusal.is_none_or(|refusal| refusal.contains("omit `pubsub`")));
    }
}
