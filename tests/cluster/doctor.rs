//! What an operator is told of a cluster.

use std::time::Duration;

use distlock::{Client, Verdict};

use super::support::{Cluster, eventually};
use super::{PATIENCE, beside, connect, patient};

async fn found(client: &Client, what: &str) -> (Verdict, String) {
    let findings = client
        .admin()
        .examine_with_probe()
        .await
        .expect("the cluster is up");
    let finding = findings.into_iter().find(|finding| finding.subject == what);
    let finding = finding.unwrap_or_else(|| panic!("nothing is said of {what}"));
    (finding.verdict, finding.found)
}

/// One that does not wait for long.
async fn hasty(cluster: &Cluster) -> Client {
    let client = patient(&cluster.url()).command_timeout(Duration::from_secs(4));
    client.connect().await.expect("the cluster is up")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_is_told_what_is_unsafe_about_it() {
    let cluster = Cluster::start().stay();
    let client = connect(&cluster).await;
    let (verdict, said) = found(&client, "slots").await;
    assert_eq!(
        (verdict, &*said),
        (Verdict::Ok, "all are served, by 3 masters")
    );
    eventually(PATIENCE, "the masters know who follows", async || {
        found(&client, "replicas").await == (Verdict::Ok, "every master has one".into())
    })
    .await;
    assert_eq!(found(&client, "failover").await.0, Verdict::Warn);
    for what in ["locking", "messages"] {
        assert_eq!(found(&client, what).await.0, Verdict::Ok, "{what}");
    }
    // Of each server, with its address.
    let policy = beside(|| {
        let one = &cluster.servers()[1];
        one.config_set("maxmemory-policy", "allkeys-lru");
        one.addr().to_string()
    });
    let (verdict, said) = found(&client, "eviction").await;
    assert_ne!(verdict, Verdict::Ok);
    assert!(said.contains(&policy), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn masters_that_nobody_follows_are_named() {
    let cluster = Cluster::start_masters();
    // Who takes one of them for all is told.
    let one = Client::connect(&cluster.servers()[0].url()).await;
    let one = one.expect("it is up");
    assert_eq!(found(&one, "address").await.0, Verdict::Fail);
    let client = connect(&cluster).await;
    let (verdict, said) = found(&client, "replicas").await;
    assert_eq!(verdict, Verdict::Warn);
    for server in cluster.servers() {
        assert!(said.contains(&server.addr().to_string()), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_named_beside_what_the_others_say() {
    let cluster = Cluster::start_masters();
    let client = hasty(&cluster).await;
    beside(|| cluster.servers()[1].kill());
    let (verdict, said) = found(&client, "server").await;
    assert_eq!(verdict, Verdict::Fail);
    let gone = cluster.servers()[1].addr().to_string();
    assert!(said.contains(&gone), "{said}");
    found(&client, "eviction").await;
}

/// A lock is tried at each, and one that takes none is named; the rest of the report comes all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_lock_is_named() {
    let cluster = Cluster::start_masters();
    let client = hasty(&cluster).await;
    assert_eq!(found(&client, "locking").await.0, Verdict::Ok);
    let stuck = beside(|| {
        let stuck = &cluster.servers()[2];
        stuck.cmd(&["CLIENT", "PAUSE", "600000", "WRITE"]);
        stuck.addr().to_string()
    });
    let (verdict, said) = found(&client, "locking").await;
    assert_eq!(verdict, Verdict::Fail);
    let others = cluster.servers().iter().take(2);
    assert!(said.contains(&stuck), "{said}");
    for other in others {
        assert!(!said.contains(&other.addr().to_string()), "{said}");
    }
    assert_eq!(found(&client, "slots").await.0, Verdict::Ok);
}

/// No lock can be at the other servers then.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_that_puts_all_locks_into_one_slot_is_tried_there() {
    let cluster = Cluster::start_masters();
    let client = patient(&cluster.url()).key_prefix("{app}:");
    let client = client.connect().await.expect("the cluster is up");
    assert_eq!(found(&client, "locking").await.0, Verdict::Ok);
}
