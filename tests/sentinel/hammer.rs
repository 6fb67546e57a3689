//! Callers in a hurry, while one failover follows another.

use std::time::Duration;

use distlock::Lease;

use super::support::Topology;
use super::support::hammer::Hammer;
use super::{beside, patient};

const FAILOVERS: usize = 3;
const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_of_a_server_that_may_not_be_written_to() {
    let topology = Topology::start();
    let mut clients = Vec::new();
    for url in [topology.url(), format!("{}?scripts=off", topology.url())] {
        // A failover takes seconds: so long a call is to be kept from failing.
        // What is in doubt and not undone runs out in the end.
        let builder = patient(&url).default_lease(Lease::KeepAlive(LEASE));
        clients.push(builder.connect().await.expect("it is up"));
    }
    let unspoken = ["readonly", "read only", "replica", "replicas"].as_slice();
    let mut hammer = Hammer::start(clients, unspoken);
    for failover in 0..FAILOVERS {
        beside(|| {
            topology.until_settled();
            let old = topology.order_failover();
            let new = topology.until_promoted(old);
            // Sentinels demote the old master seconds later. Whoever still believes in it meets a replica.
            let port = new.port().to_string();
            old.cmd(&["REPLICAOF", "127.0.0.1", &port]);
            topology.until_not(old);
        });
        let errors = hammer.goes_on().await;
        eprintln!("failover {failover}: {errors} errors so far");
    }
    hammer.end().await;
}
