//! Servers that tell of each other, behind proxies: whoever asks is never sent past them.

use std::collections::BTreeSet;

use redis::{FromRedisValue, RedisError, RedisResult};

use super::patient;
use super::support::{Arrangement, ChaosProxy, Cluster, Servers};

#[tokio::test]
async fn whoever_asks_a_cluster_is_sent_to_proxies() {
    let servers = Servers::start(Arrangement::Cluster, Cluster::start_lopsided);
    let proxy = servers.proxy();
    let doors = doors(&proxy);
    assert_eq!(doors.first(), Some(&proxy.addr().port()));
    for door in &doors {
        let slots: Vec<Vec<redis::Value>> = ask(*door, &["CLUSTER", "SLOTS"]).await.unwrap();
        let owner = |range: &Vec<redis::Value>| -> u16 {
            let (_, port, _): (String, u16, String) =
                redis::from_redis_value(first_three(&range[2])).expect("a server");
            port
        };
        let owners: BTreeSet<u16> = slots.iter().map(owner).collect();
        assert_eq!(owners, doors.iter().copied().collect());
        let nodes: String = ask(*door, &["CLUSTER", "NODES"]).await.unwrap();
        for server in servers.masters() {
            let port = format!(":{}@", server.port());
            assert!(!nodes.contains(&port), "{nodes}");
        }
    }
    // All but a few slots are the first's.
    let moved: RedisResult<Option<String>> = ask(doors[1], &["GET", "stock"]).await;
    let moved: RedisError = moved.expect_err("it has not that slot");
    let said = format!("{moved} {moved:?}");
    assert!(said.contains(&format!(":{}", doors[0])), "{said}");
}

#[tokio::test]
async fn whoever_asks_sentinels_is_sent_to_proxies() {
    let servers = Servers::start(Arrangement::Sentinel, Cluster::start);
    let proxy = servers.proxy();
    let doors = doors(&proxy);
    for door in &doors {
        let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
        let (_, port): (String, u16) = ask(*door, &asked).await.unwrap();
        assert_eq!(port, proxy.addr().port());
        let others: Vec<std::collections::HashMap<String, String>> =
            ask(*door, &["SENTINEL", "SENTINELS", "mymaster"])
                .await
                .unwrap();
        let mut known: Vec<u16> = others
            .iter()
            .map(|one| one["port"].parse().unwrap())
            .collect();
        known.push(*door);
        known.sort_unstable();
        let mut all = doors.clone();
        all.sort_unstable();
        assert_eq!(known, all);
    }
}

/// The ports in the address.
fn doors(proxy: &ChaosProxy) -> Vec<u16> {
    let url = proxy.url();
    let (_, hosts) = url.split_once("://").expect("an address");
    let hosts = hosts.split('/').next().expect("some hosts").split(',');
    let ports = hosts.map(|host| host.rsplit(':').next().and_then(|port| port.parse().ok()));
    ports.map(|port| port.expect("a port")).collect()
}

async fn ask<T: FromRedisValue>(door: u16, words: &[&str]) -> RedisResult<T> {
    let mut connection = patient(&format!("redis://127.0.0.1:{door}/")).await;
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).query_async(&mut connection).await
}

/// What some servers say beside is left out.
fn first_three(server: &redis::Value) -> redis::Value {
    let redis::Value::Array(said) = server else {
        panic!("no server: {server:?}");
    };
    redis::Value::Array(said[..3].to_vec())
}
