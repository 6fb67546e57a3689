//! What `docs/connecting.md` says of clusters.

use distlock::{Lease, Verdict};

use super::support::{Cluster, rights};
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
    let mut all = rights::commands();
    all.extend(rights::added_for(rights::CLUSTER));
    let url = beside(|| url_of_a_user(&cluster, &all));
    let client = patient(&url).connect().await.expect("it may");
    let other = patient(&url).connect().await.expect("it may");
    for name in ["a", "b", "c"] {
        let lock = client.lock(name).with_lease(Lease::Fixed(PATIENCE * 10));
        let guard = lock.acquire().await.expect("it is free");
        let waiting = {
            let lock = other.lock(name);
            tokio::spawn(async move { lock.acquire().await })
        };
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        guard.release().await.expect("it is ours");
        let next = tokio::time::timeout(PATIENCE, waiting).await;
        let next = next.expect("it is woken").expect("no panic");
        next.expect("it is free").release().await.expect("ours");
    }
    // Without any one of these, somebody cannot begin, listen or let go.
    for missing in ["+cluster|slots", "+spublish", "+ssubscribe", "+evalsha"] {
        let less: Vec<&str> = all
            .iter()
            .copied()
            .filter(|right| *right != missing)
            .collect();
        let url = beside(|| url_of_a_user(&cluster, &less));
        let connected = patient(&url).connect().await;
        let works = match connected {
            Err(_) => false,
            Ok(client) => {
                let findings = client.admin().examine().await.expect("it is up");
                let needed = ["locking", "messages"];
                let mut needed = findings
                    .iter()
                    .filter(|found| needed.contains(&&*found.subject));
                needed.all(|found| found.verdict == Verdict::Ok)
            }
        };
        assert!(!works, "without {missing} everything works");
    }
}
