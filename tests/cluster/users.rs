//! The statements of `docs/connecting.md` about clusters, and about the rights that locks need there.

use std::time::Duration;

use distlock::Error;
use tokio::time::sleep;

use super::{LONG, connect_to, release};
use crate::support::{Cluster, PATIENCE, RedisServer, builder, eventually, rights, simulated};

const PAGE: &str = include_str!("../../docs/connecting.md");

/// Returns the url of a user with these rights, created at every server.
fn url_of_a_user(cluster: &Cluster, rights: &[&str]) -> String {
    let all = ["~*", "&*", "-@all"].iter().chain(rights);
    for server in cluster.redis() {
        let user = ["ACL", "SETUSER", "app", "reset", "on", ">s3cr/et"];
        let words: Vec<&str> = user.iter().chain(all.clone()).copied().collect();
        server.cmd(&words);
    }
    cluster.url_as("app:s3cr%2Fet@")
}

/// The hosts in the url are those of the first three nodes.
#[test]
fn the_documented_address_works() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let mut lines = PAGE.lines();
        let line = lines.find(|line| line.starts_with("redis-cluster://app"));
        let url = line.expect("the page has it");
        assert_eq!(url, url_of_a_user(&cluster, &["+@all"]));
        let client = connect_to(url).await;
        release(client.lock("copied").acquire().await.expect("it is free")).await;
    });
}

/// No right is superfluous, and none is missing.
#[test]
fn a_user_needs_the_documented_rights() {
    simulated(async || {
        let words = rights::added_for(rights::CLUSTER);
        let mut all = rights::commands();
        all.extend(&words);
        all.extend(rights::added_for("the warning"));
        for missing in words.iter().copied().map(Some).chain([None]) {
            let cluster = Cluster::start_masters();
            let left = all.iter().copied().filter(|right| Some(*right) != missing);
            let url = url_of_a_user(&cluster, &left.collect::<Vec<&str>>());
            let played = played(&cluster, &url).await;
            // Some rights can be missing; the client then does the best it can.
            let denied = cluster.redis().iter().flat_map(RedisServer::denied);
            let denied: Vec<String> = denied.collect();
            match missing {
                None => {
                    played.expect("it may do all of it");
                    assert_eq!(denied, Vec::<String>::new());
                }
                Some(missing) => {
                    let works = played.is_ok() && denied.is_empty();
                    assert!(!works, "{missing} is for nothing");
                    let mut denied = denied.iter();
                    assert!(denied.all(|denied| missing.contains(denied)), "{denied:?}");
                }
            }
        }
    });
}

/// Acquires locks in several slots, one of them being moved, each waited for and released.
async fn played(cluster: &Cluster, url: &str) -> Result<(), Error> {
    let client = builder(url).connect().await?;
    let other = builder(url).connect().await?;
    for master in 0..3 {
        let name = cluster.name_at(master);
        let guard = client.lock(&*name).with_lease(LONG).acquire().await?;
        let waiting = tokio::spawn(other.lock(&*name).acquire());
        sleep(Duration::from_secs(1)).await;
        guard.release().await?;
        let next = tokio::time::timeout(PATIENCE, waiting).await;
        let next = next.expect("it is woken").expect("no panic");
        next?.release().await?;
    }
    let to = cluster.another_than(cluster.node_of("moves"));
    let from = cluster.begin_moving("moves", to);
    // Wait until the request is redirected, and then until the slot has arrived.
    let lock = client.lock("moves").with_lease(LONG);
    let moved = tokio::spawn(async move { lock.acquire().await?.release().await });
    let target = &cluster.redis()[to];
    eventually(PATIENCE, "it is sent on, or may not be", async || {
        moved.is_finished() || target.commandstats("asking") > 0 || !target.denied().is_empty()
    })
    .await;
    cluster.finish_moving("moves", from, to);
    moved.await.expect("no panic")
}
