//! Where it takes long to connect.

use std::time::Duration;

use super::support::{
    ChaosProxy, Cluster, Fault, Match, RedisServer, Words, eventually, wait_until,
};
use super::{PATIENCE, beside, patient};

/// Once it is known who has what, the next round of questions does not wait for a server that is slow. Where all are, and every
/// connection is lost, it has to.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_is_followed_though_connecting_takes_longer_than_an_answer_may() {
    let cluster = Cluster::start_lopsided();
    let old = beside(|| cluster.owner("slow"));
    let new = beside(|| cluster.until_replicated(old));
    let proxies = beside(|| announced(&cluster));
    let addresses: Vec<_> = proxies.iter().map(ChaosProxy::addr).collect();
    let client = patient(&cluster.url_at("", &addresses)).connect().await;
    let client = client.expect("the cluster is up");
    let guard = client.lock("slow").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
    for proxy in &proxies {
        let late = Fault::DelayReply(Duration::from_millis(1500));
        proxy.rule(Match::command("HELLO"), late);
        proxy.cut_all();
    }
    beside(|| {
        new.cmd(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        old.kill();
    });
    eventually(2 * PATIENCE, "it is followed", async || {
        let taken = client.lock("slow").try_acquire().await;
        taken.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

/// Those to whom it takes longer than one that has answered are not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_greets_does_not_keep_the_others_from_being_asked() {
    let cluster = Cluster::start_lopsided();
    let proxies = beside(|| announced(&cluster));
    let addresses: Vec<_> = proxies.iter().map(ChaosProxy::addr).collect();
    let client = patient(&cluster.url_at("", &addresses)).connect().await;
    let _client = client.expect("the cluster is up");
    let (silent, others) = (&proxies[1], [&proxies[0], &proxies[2], &proxies[3]]);
    silent.rule(Match::command("HELLO"), Fault::HoldReply);
    proxies.iter().for_each(ChaosProxy::cut_all);
    eventually(PATIENCE, "it is connected to in vain", async || {
        !silent.injected().is_empty()
    })
    .await;
    let asked = |proxy: &ChaosProxy| {
        let asks = |words: &&Words| words.first().is_some_and(|word| word == "CLUSTER");
        proxy.requests().iter().filter(asks).count()
    };
    let before = others.map(asked);
    // Two questions each time. One that hangs is tried anew after ten seconds, and the others with it.
    eventually(
        Duration::from_secs(8),
        "the others are asked again",
        async || {
            let now = others.map(asked);
            now.iter()
                .zip(before)
                .all(|(now, before)| *now >= before + 4)
        },
    )
    .await;
}

/// A proxy before each server, which the cluster itself names in its place.
fn announced(cluster: &Cluster) -> Vec<ChaosProxy> {
    let servers = cluster.servers().iter();
    let proxies: Vec<_> = servers
        .map(|server| {
            let proxy = ChaosProxy::start(server.addr());
            let port = proxy.addr().port().to_string();
            server.config_set("cluster-announce-port", &port);
            proxy
        })
        .collect();
    for server in cluster.servers() {
        until_named(server, &proxies);
    }
    proxies
}

fn until_named(server: &RedisServer, proxies: &[ChaosProxy]) {
    wait_until("all servers are named by their proxies", || {
        let nodes: String = server.query(&["CLUSTER", "NODES"]);
        let mut ports = proxies.iter().map(|proxy| proxy.addr().port());
        ports.all(|port| nodes.contains(&format!(":{port}@")))
    });
}
