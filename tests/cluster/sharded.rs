//! Channels that belong to a slot, where servers know them: Redis does from 7.0 on.

use super::support::{Cluster, eventually};
use super::waiting::{LONG, by, is_told};
use super::{PATIENCE, beside};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_both_sorts_is_told_by_one_that_speaks_to_both() {
    let cluster = Cluster::start_masters();
    let both = by(&cluster, "?pubsub=both").await;
    for manner in ["?pubsub=plain", "?pubsub=sharded"] {
        let other = by(&cluster, manner).await;
        for name in ["a", "b", "c"] {
            assert!(is_told(&both, &other, name).await, "to {manner}: {name}");
            assert!(is_told(&other, &both, name).await, "from {manner}: {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_wherever_the_slot_has_gone() {
    let cluster = Cluster::start_masters();
    let (holder, waiter) = (by(&cluster, "").await, by(&cluster, "").await);
    let name = "moved";
    for round in 0..3 {
        let guard = holder.lock(name).with_lease(LONG);
        let guard = guard.acquire().await.expect("it is free");
        let waiting = {
            let lock = waiter.lock(name).with_lease(LONG);
            tokio::spawn(async move { lock.acquire().await })
        };
        let listeners = |at: &super::support::RedisServer| -> usize {
            let channels: Vec<String> = at.query(&["PUBSUB", "SHARDCHANNELS"]);
            channels.len()
        };
        let from = beside(|| cluster.owner(name));
        eventually(PATIENCE, "it listens", async || {
            beside(|| listeners(from) == 1)
        })
        .await;
        let to = beside(|| {
            let mut others = cluster.servers().iter();
            let to = others.find(|server| server.port() != from.port());
            let to = to.expect("there are three");
            cluster.migrate(cluster.slot(name), to);
            to
        });
        eventually(PATIENCE, "it listens there", async || {
            beside(|| listeners(to) == 1)
        })
        .await;
        assert_eq!(beside(|| listeners(from)), 0, "round {round}");
        guard.release().await.expect("it is ours");
        let ended = tokio::time::timeout(PATIENCE, waiting).await;
        let next = ended.expect("it is woken").expect("no panic");
        next.expect("it is free").release().await.expect("ours");
    }
    assert!(is_told(&holder, &waiter, name).await);
}
