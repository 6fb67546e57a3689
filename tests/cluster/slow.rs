//! A cluster to which connecting takes long.

use std::time::Duration;

use super::{connect_to, release};
use crate::support::{ChaosProxy, Cluster, Fault, Match, Words, eventually, simulated};

/// Once the slot map is known, the next refresh does not wait for a slow server. If all are slow, and every connection is lost, it has to.
#[test]
fn a_failover_is_followed_though_connecting_takes_longer_than_the_reply_timeout() {
    simulated(async || {
        let cluster = Cluster::start();
        let proxies = announced(&cluster);
        let client = connect_to(&url(&proxies[..3])).await;
        release(client.lock("slow").acquire().await.expect("it is free")).await;
        for proxy in &proxies {
            let late = Fault::DelayReply(Duration::from_millis(1500));
            proxy.rule(Match::command("HELLO"), late);
            proxy.cut_all();
        }
        let old = cluster.node_of("slow");
        cluster.take_over(cluster.replicas_of(old)[0]);
        cluster.kill(old);
        eventually(Duration::from_secs(30), "it is followed", async || {
            let taken = client.lock("slow").try_acquire().await;
            taken.is_ok_and(|guard| guard.is_some())
        })
        .await;
    });
}

/// A server that takes longer to connect to than another one takes to reply is not waited for.
#[test]
fn a_server_that_never_completes_its_handshake_does_not_block_the_others() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let proxies = announced(&cluster);
        let _client = connect_to(&url(&proxies)).await;
        let (silent, others) = (&proxies[1], [&proxies[0], &proxies[2]]);
        silent.rule(Match::command("HELLO"), Fault::HoldReply);
        proxies.iter().for_each(ChaosProxy::cut_all);
        let within = Duration::from_secs(10);
        eventually(within, "it is connected to in vain", async || {
            !silent.injected().is_empty()
        })
        .await;
        let asked = |proxy: &ChaosProxy| {
            let asks = |words: &&Words| words.first().is_some_and(|word| word == "CLUSTER");
            proxy.requests().iter().filter(asks).count()
        };
        let before = others.map(asked);
        // Two requests each time. A hanging server is retried after ten seconds, and the others with it.
        let within = Duration::from_secs(8);
        eventually(within, "the others are asked again", async || {
            let now = others.map(asked);
            now.iter()
                .zip(before)
                .all(|(now, before)| *now >= before + 4)
        })
        .await;
    });
}

/// Starts a proxy before each server, which the cluster itself announces in its place.
fn announced(cluster: &Cluster) -> Vec<ChaosProxy> {
    let servers = cluster.redis().iter().enumerate();
    let proxies = servers.map(|(node, server)| {
        let proxy = ChaosProxy::start(server.addr());
        let addr = proxy.addr();
        cluster.announce(node, &addr.ip().to_string(), addr.port());
        proxy
    });
    proxies.collect()
}

fn url(proxies: &[ChaosProxy]) -> String {
    let hosts = proxies.iter().map(|proxy| proxy.addr().to_string());
    format!("redis-cluster://{}", hosts.collect::<Vec<_>>().join(","))
}
