//! The diagnosis of a cluster that an operator reads.

use distlock::{Client, Severity};
use distlock_sim::Fault;

use super::{connect, connect_to};
use crate::support::{Cluster, builder, simulated};

async fn found(client: &Client, what: &str) -> (Severity, String) {
    let findings = client.admin().examine_with_probe().await;
    let findings = findings.expect("the cluster is up");
    let finding = findings.into_iter().find(|finding| finding.subject == what);
    let finding = finding.unwrap_or_else(|| panic!("nothing is said of {what}"));
    (finding.severity, finding.found)
}

#[test]
fn an_unsafe_configuration_is_reported() {
    simulated(async || {
        let cluster = Cluster::start();
        let client = connect(&cluster).await;
        let (verdict, said) = found(&client, "slots").await;
        assert_eq!(
            (verdict, &*said),
            (Severity::Ok, "all slots are served, by 3 masters")
        );
        let replicas = found(&client, "replicas").await;
        assert_eq!(
            replicas,
            (Severity::Ok, "every master has a replica".into())
        );
        assert_eq!(found(&client, "failover").await.0, Severity::Warn);
        for what in ["locking", "messages"] {
            assert_eq!(found(&client, what).await.0, Severity::Ok, "{what}");
        }
        // A finding is reported for each server, with its address.
        let one = &cluster.redis()[1];
        one.config_set("maxmemory-policy", "allkeys-lru");
        let (verdict, said) = found(&client, "eviction").await;
        assert_ne!(verdict, Severity::Ok);
        assert!(said.contains(&one.addr().to_string()), "{said}");
    });
}

#[test]
fn masters_without_replicas_are_named() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let one = connect_to(&cluster.redis()[0].url()).await;
        assert_eq!(found(&one, "address").await.0, Severity::Fail);
        let client = connect(&cluster).await;
        let (verdict, said) = found(&client, "replicas").await;
        assert_eq!(verdict, Severity::Warn);
        for server in cluster.redis() {
            assert!(said.contains(&server.addr().to_string()), "{said}");
        }
    });
}

#[test]
fn a_failed_node_is_named_beside_the_findings_of_the_others() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let client = connect(&cluster).await;
        assert_eq!(found(&client, "locking").await.0, Severity::Ok);
        cluster.server(2).set_fault(Some(Fault::OutOfMemory));
        let (verdict, said) = found(&client, "locking").await;
        assert_eq!(verdict, Severity::Fail);
        for (node, server) in cluster.redis().iter().enumerate() {
            let is_named = said.contains(&server.addr().to_string());
            assert_eq!(is_named, node == 2, "{said}");
        }
        assert_eq!(found(&client, "slots").await.0, Severity::Ok);
        cluster.server(2).set_fault(None);
        cluster.kill(1);
        let (verdict, said) = found(&client, "server").await;
        assert_eq!(verdict, Severity::Fail);
        let gone = cluster.redis()[1].addr().to_string();
        assert!(said.contains(&gone), "{said}");
        found(&client, "eviction").await;
    });
}

/// No lock can be at the other servers then.
#[test]
fn a_prefix_that_puts_all_locks_into_one_slot_is_probed_there() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let client = builder(&cluster.url()).key_prefix("{app}:");
        let client = client.connect().await.expect("the cluster is up");
        assert_eq!(found(&client, "locking").await.0, Severity::Ok);
    });
}
