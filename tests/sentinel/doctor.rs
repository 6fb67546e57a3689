//! The diagnosis of a topology that an operator reads.

use std::time::Duration;

use distlock::{Durability, Lease, Severity};

use super::{connect, patient};
use crate::support::sentinel::host;
use crate::support::{Topology, simulated};

#[test]
fn an_unsafe_configuration_is_reported() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = connect(&topology).await;
        let found = async |client: &distlock::Client, what: &str| {
            let findings = client.admin().examine().await.expect("it is up");
            let finding = findings.into_iter().find(|finding| finding.subject == what);
            let finding = finding.unwrap_or_else(|| panic!("nothing is said of {what}"));
            (finding.severity, finding.found)
        };
        let all = "3 of 3 reply, of 3 in all, quorum 2".to_owned();
        assert_eq!(found(&client, "sentinels").await, (Severity::Ok, all));
        let all = "2 of 2 replicas follow the master".to_owned();
        assert_eq!(found(&client, "replicas").await, (Severity::Ok, all));
        for what in ["split", "persistence", "failover"] {
            let (verdict, said) = found(&client, what).await;
            assert_eq!(verdict, Severity::Warn, "{said}");
        }
        for (acks, expected) in [(1, Severity::Warn), (2, Severity::Ok)] {
            let delay = Duration::from_secs(30);
            let timeout = Duration::from_secs(1);
            let builder = patient(&topology.url())
                .default_lease(Lease::KeepAlive(delay))
                .failover_delay(delay)
                .durability(Durability::Replicas { acks, timeout });
            let client = builder.connect().await.expect("it is up");
            let (verdict, said) = found(&client, "failover").await;
            assert_eq!(verdict, expected, "{said}");
        }

        let sentinel = format!("redis://{}:26379/", host(&topology.sentinels()[0]));
        let sentinel = patient(&sentinel).connect().await.expect("it is up");
        let (verdict, said) = found(&sentinel, "address").await;
        assert_eq!(verdict, Severity::Fail, "it is no server: {said}");

        topology.master().config_set("min-replicas-to-write", "1");
        topology.sentinels()[1].kill();
        let (verdict, said) = found(&client, "sentinels").await;
        assert!(
            verdict == Severity::Warn && said.starts_with("2 of 3 reply"),
            "{said}"
        );
        assert_eq!(found(&client, "split").await.0, Severity::Ok);
    });
}
