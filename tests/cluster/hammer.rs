//! Callers in a hurry, while one master after the other is replaced.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock::Lease;

use super::support::Cluster;
use super::support::hammer::Hammer;
use super::{beside, manners, patient};

/// What servers say to whoever asks the wrong one, or too early.
const UNSPOKEN: &[&str] = &[
    "ask",
    "clusterdown",
    "loading",
    "masterdown",
    "moved",
    "read only",
    "readonly",
    "replica",
    "replicas",
    "tryagain",
];

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_that_a_lock_is_elsewhere_or_nowhere() {
    let cluster = Cluster::start();
    let owners = Hammer::names().map(|name| beside(|| cluster.owner(&name).port()));
    let owners: BTreeSet<u16> = owners.collect();
    assert_eq!(owners.len(), 3, "each master has a lock");
    let mut clients = Vec::new();
    for parameter in manners(&cluster) {
        // A failover takes seconds: so long a call is to be kept from failing.
        let builder = patient(&format!("{}{parameter}", cluster.url()));
        // What is in doubt and not undone runs out in the end.
        let builder = builder.default_lease(Lease::KeepAlive(LEASE));
        clients.push(builder.connect().await.expect("the cluster is up"));
    }
    let mut hammer = Hammer::start(clients, UNSPOKEN);
    for name in Hammer::names() {
        beside(|| cluster.fail_over(cluster.owner(&name)));
        let ordered = hammer.goes_on().await;
        beside(|| {
            cluster.until_settled();
            let old = cluster.owner(&name);
            cluster.kill(old);
            // Empty, and with another's slots at first.
            old.restart();
        });
        let killed = hammer.goes_on().await;
        eprintln!(
            "{name}: {ordered} errors until its master was killed, {killed} until all went on"
        );
        beside(|| cluster.until_settled());
    }
    hammer.end().await;
}
