//! The nodes of a simulated cluster among themselves: failovers, partitions, slots that move, and messages from node to node.

use std::time::Duration;

use distlock_sim::{Cluster, Network, Stream, Value, slot_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

const TIMEOUT: Duration = Duration::from_millis(1500);
/// Upper bound for a failover.
const FAILOVER: Duration = Duration::from_secs(8);

/// Starts three masters with a replica each; `a` and `b` are keys of different masters.
fn cluster() -> (Network, Cluster) {
    let network = Network::new(1);
    let cluster = Cluster::new(&network, 3, 1, 1);
    cluster.set_node_timeout(TIMEOUT);
    (network, cluster)
}

fn call(cluster: &Cluster, node: usize, request: &str) -> Value {
    super::call(cluster.server(node), request)
}

fn owner(cluster: &Cluster, key: &str) -> usize {
    cluster.owner(slot_of(key)).expect("a node has the slot")
}

async fn connect(network: &Network, cluster: &Cluster, node: usize) -> Stream {
    let stream = network.connect("client", cluster.host(node), 6379).await;
    stream.expect("it is up")
}

async fn read(stream: &mut Stream) -> String {
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer).await.expect("it answers");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

async fn ask(network: &Network, cluster: &Cluster, node: usize, request: &str) -> String {
    let mut stream = connect(network, cluster, node).await;
    let request = format!("{request}\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    read(&mut stream).await
}

#[tokio::test(start_paused = true)]
async fn a_crashed_master_is_replaced_by_its_replica_after_the_node_timeout() {
    let (network, cluster) = cluster();
    let old = owner(&cluster, "a");
    let replica = cluster.replicas_of(old)[0];
    cluster.set_lag(Duration::from_millis(10));
    call(&cluster, old, "SET a kept");
    sleep(Duration::from_millis(10)).await;
    call(&cluster, old, "SET a lost");
    cluster.kill(old);
    sleep(TIMEOUT).await;
    assert_eq!(owner(&cluster, "a"), old, "not earlier");
    let begun = Instant::now();
    while owner(&cluster, "a") == old {
        sleep(Duration::from_millis(10)).await;
        assert!(begun.elapsed() < FAILOVER);
    }
    assert_eq!(owner(&cluster, "a"), replica);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(call(&cluster, replica, "GET a"), Value::bulk("kept"));
    for node in 0..6 {
        let is_behind = node == old;
        let believed = cluster.believed_owner(node, slot_of("a"));
        assert_eq!(believed, Some(if is_behind { old } else { replica }));
    }
    // When the old master is back, it is a replica with the data of the new one.
    cluster.revive(old, true);
    let said = ask(&network, &cluster, old, "SET a wrong").await;
    assert!(
        said.starts_with("-CLUSTERDOWN ") || said.starts_with("-MOVED "),
        "{said}"
    );
    cluster.settled().await;
    assert_eq!(cluster.master_of(old), Some(replica));
    assert_eq!(call(&cluster, old, "GET a"), Value::bulk("kept"));
    let said = ask(&network, &cluster, old, "SET a wrong").await;
    assert!(said.starts_with("-MOVED "), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_master_rejects_requests_after_the_node_timeout() {
    let (network, cluster) = cluster();
    let old = owner(&cluster, "a");
    cluster.cut_off(old);
    sleep(TIMEOUT / 2).await;
    let said = ask(&network, &cluster, old, "SET a 1").await;
    assert_eq!(said, "+OK\r\n", "it does not know yet");
    sleep(FAILOVER).await;
    let said = ask(&network, &cluster, old, "SET a 2").await;
    assert!(said.starts_with("-CLUSTERDOWN "), "{said}");
    let new = owner(&cluster, "a");
    assert_ne!(new, old);
    assert_eq!(
        call(&cluster, new, "GET a"),
        Value::Nil,
        "it has not arrived"
    );
    call(&cluster, new, "SET a new");
    cluster.rejoin(old);
    cluster.settled().await;
    assert_eq!(cluster.master_of(old), Some(new));
    assert_eq!(call(&cluster, old, "GET a"), Value::bulk("new"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_with_uncovered_slots_serves_the_rest_unless_full_coverage_is_required() {
    let network = Network::new(1);
    let cluster = Cluster::new(&network, 3, 0, 1);
    cluster.set_node_timeout(TIMEOUT);
    let gone = owner(&cluster, "a");
    let other = owner(&cluster, "b");
    assert_ne!(gone, other);
    cluster.kill(gone);
    sleep(FAILOVER).await;
    let said = ask(&network, &cluster, other, "SET b 1").await;
    assert_eq!(said, "-CLUSTERDOWN The cluster is down\r\n");
    cluster.configure("cluster-require-full-coverage", "no");
    sleep(Duration::from_secs(1)).await;
    let said = ask(&network, &cluster, other, "SET b 1").await;
    assert_eq!(said, "+OK\r\n");
    // The master comes back without its data, and with its slots; the rest of the cluster accepts it again.
    cluster.revive(gone, false);
    sleep(FAILOVER).await;
    cluster.settled().await;
    assert_eq!(owner(&cluster, "a"), gone);
    let said = ask(&network, &cluster, gone, "GET a").await;
    assert_eq!(said, "$-1\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_manual_failover_loses_nothing_and_is_announced_to_the_other_nodes() {
    let (_network, cluster) = cluster();
    let old = owner(&cluster, "a");
    let replica = cluster.replicas_of(old)[0];
    cluster.set_lag(Duration::from_secs(60));
    cluster.set_unaware(owner(&cluster, "b"), true);
    call(&cluster, old, "SET a 1");
    cluster.fail_over(replica);
    assert_eq!(call(&cluster, replica, "GET a"), Value::bulk("1"));
    assert_eq!(cluster.master_of(old), Some(replica));
    let slot = slot_of("a");
    let unaware = owner(&cluster, "b");
    sleep(FAILOVER).await;
    assert_eq!(cluster.believed_owner(unaware, slot), Some(old));
    cluster.set_unaware(unaware, false);
    assert_eq!(cluster.believed_owner(unaware, slot), Some(replica));
    cluster.settled().await;
}

#[tokio::test(start_paused = true)]
async fn messages_reach_the_subscribers_of_all_nodes_and_end_with_the_slot() {
    let (network, cluster) = cluster();
    let (from, to) = (owner(&cluster, "a"), owner(&cluster, "b"));
    let mut subscriber = connect(&network, &cluster, from).await;
    let asked = subscriber
        .write_all(b"SUBSCRIBE all\r\nSSUBSCRIBE a\r\n")
        .await;
    asked.expect("it reads");
    let mut said = String::new();
    while !said.contains("ssubscribe") {
        said += &read(&mut subscriber).await;
    }
    assert_eq!(call(&cluster, to, "PUBLISH all hello"), Value::Integer(0));
    assert!(read(&mut subscriber).await.contains("hello"));
    // The message reaches only the nodes of its shard.
    let replica = cluster.replicas_of(from)[0];
    call(&cluster, replica, "SPUBLISH a shard");
    assert!(read(&mut subscriber).await.contains("shard"));
    call(&cluster, from, "SET a 1");
    cluster.migrate(slot_of("a"), to);
    assert!(read(&mut subscriber).await.contains("sunsubscribe"));
    assert_eq!(owner(&cluster, "a"), to);
    assert_eq!(call(&cluster, to, "GET a"), Value::bulk("1"));
    assert_eq!(call(&cluster, from, "GET a"), Value::Nil);
    cluster.settled().await;
}
