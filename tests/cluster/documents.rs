//! What `docs/connecting.md` says of clusters.

use distlock::{Error, Lease};

use super::support::{Cluster, RedisServer, eventually, rights};
use super::{PATIENCE, beside, patient};

const PAGE: &str = include_str!("../../docs/connecting.md");

/// Logs in as a user who may do this much, at every server.
fn url_of_a_user(cluster: &Cluster, rights: &[&str]) -> String {
    let all = ["~*", "&*", "-@all"].iter().chain(rights);
    for server in cluster.servers() {
        let user = ["ACL", "SETUSER", "app", "reset", "on", ">s3cr/et"];
        let words: Vec<&str> = user.iter().chain(all.clone()).copied().collect();
        server.cmd(&words);
    }
    cluster.url_as("app:s3cr%2Fet@")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_to_copy_works() {
    let cluster = Cluster::start_masters();
    let line = PAGE
        .lines()
        .find(|line| line.starts_with("redis-cluster://app"));
    let mut url = line.expect("the page has it").to_owned();
    let hosts = ["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"];
    for (host, server) in hosts.iter().zip(cluster.servers()) {
        url = url.replace(host, &server.addr().to_string());
    }
    assert_eq!(url, beside(|| url_of_a_user(&cluster, &["+@all"])));
    let client = patient(&url).connect().await.expect("it is right");
    let guard = client.lock("copied").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
}

/// What else it may do, it does not need; and what it may not, it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_needs_what_the_page_lists() {
    let cluster = Cluster::start_masters();
    let mut words = rights::added_for(rights::CLUSTER);
    if !beside(|| cluster.is_sharded()) {
        words.truncate(words.len() - 3);
    }
    let mut all = rights::commands();
    all.extend(&words);
    all.extend(rights::added_for("the warning"));
    for missing in words.iter().copied().map(Some).chain([None]) {
        let left = all.iter().copied().filter(|right| Some(*right) != missing);
        let left: Vec<&str> = left.collect();
        let url = beside(|| {
            for server in cluster.servers() {
                server.cmd(&["ACL", "LOG", "RESET"]);
                server.cmd(&["CONFIG", "RESETSTAT"]);
            }
            url_of_a_user(&cluster, &left)
        });
        let played = played(&cluster, &url).await;
        // Some are done without, as well as it goes.
        let denied = || cluster.servers().iter().flat_map(RedisServer::denied);
        let denied: Vec<String> = beside(|| denied().collect());
        match missing {
            None => {
                played.expect("it may do all of it");
                assert_eq!(denied, Vec::<String>::new());
            }
            Some(missing) => {
                let works = played.is_ok() && denied.is_empty();
                assert!(!works, "{missing} is for nothing");
                assert!(
                    denied.iter().all(|denied| missing.contains(denied)),
                    "{denied:?}"
                );
            }
        }
    }
}

/// Locks in several slots, one of them on its way, each waited for and left.
async fn played(cluster: &Cluster, url: &str) -> Result<(), Error> {
    let client = patient(url).connect().await?;
    let other = patient(url).connect().await?;
    for name in ["a", "b", "c"] {
        let lock = client.lock(name).with_lease(Lease::Fixed(PATIENCE * 10));
        let guard = lock.acquire().await?;
        let waiting = tokio::spawn(other.lock(name).acquire());
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        guard.release().await?;
        let next = tokio::time::timeout(PATIENCE, waiting).await;
        let next = next.expect("it is woken").expect("no panic");
        next?.release().await?;
    }
    let (slot, from) = beside(|| (cluster.slot("moves"), cluster.owner("moves")));
    let mut others = cluster.servers().iter();
    let to = others.find(|server| server.port() != from.port());
    let to = to.expect("there are three");
    beside(|| cluster.begin_migration(slot, from, to));
    // Until it has been sent on, and then until it has arrived.
    let lock = client.lock("moves").with_lease(Lease::Fixed(PATIENCE));
    let moved = tokio::spawn(async move { lock.acquire().await?.release().await });
    eventually(PATIENCE, "it is sent on, or may not be", async || {
        let sent_on = || to.commandstats("asking") > 0 || !to.denied().is_empty();
        moved.is_finished() || beside(sent_on)
    })
    .await;
    beside(|| {
        cluster.move_keys(slot, from, to);
        cluster.end_migration(slot, to);
    });
    moved.await.expect("no panic")
}
