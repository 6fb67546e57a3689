//! What an operator is told of a topology.

use std::time::Duration;

use distlock::{Durability, Lease, Verdict};

use super::support::{Topology, eventually};
use super::{PATIENCE, beside, connect, patient};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_is_told_what_is_unsafe_about_it() {
    let topology = Topology::start();
    let client = connect(&topology).await;
    let found = async |what: &str| {
        let findings = client.admin().examine().await.expect("the master is up");
        let finding = findings.into_iter().find(|finding| finding.subject == what);
        let finding = finding.unwrap_or_else(|| panic!("nothing is said of {what}"));
        (finding.verdict, finding.found)
    };
    eventually(PATIENCE, "all sentinels answer in time", async || {
        let all = "3 of 3 answer, of 3 in all, quorum 2";
        found("sentinels").await == (Verdict::Ok, all.into())
    })
    .await;
    eventually(PATIENCE, "the sentinels know who follows", async || {
        found("replicas").await == (Verdict::Ok, "2 of 2 follow the master".into())
    })
    .await;
    let (verdict, said) = found("split").await;
    assert_eq!(verdict, Verdict::Warn, "{said}");
    assert_eq!(found("persistence").await.0, Verdict::Warn);
    let (verdict, said) = found("failover").await;
    assert_eq!(verdict, Verdict::Warn, "{said}");
    let delay = Duration::from_secs(30);
    let durability = |acks| Durability::Replicas {
        acks,
        timeout: Duration::from_secs(1),
    };
    for (acks, verdict) in [(1, Verdict::Warn), (2, Verdict::Ok)] {
        let builder = patient(&topology.url())
            .default_lease(Lease::KeepAlive(delay))
            .failover_delay(delay);
        let client = builder.durability(durability(acks)).connect().await;
        let findings = client.expect("it is up").admin().examine().await;
        let findings = findings.expect("the master is up");
        let mut findings = findings.iter();
        let found = findings.find(|found| found.subject == "failover");
        assert_eq!(found.map(|found| found.verdict), Some(verdict), "{found:?}");
    }

    // Who takes a sentinel for a server is told.
    let sentinel = topology.sentinels()[0].url();
    let sentinel = patient(&sentinel).connect().await.expect("it is up");
    let findings = sentinel.admin().examine().await.expect("it is up");
    let mut findings = findings.iter();
    let found_there = findings.find(|found| found.subject == "address");
    assert_eq!(
        found_there.map(|found| found.verdict),
        Some(Verdict::Fail),
        "{found_there:?}"
    );

    beside(|| {
        topology.master().config_set("min-replicas-to-write", "1");
        topology.sentinels()[1].kill();
    });
    eventually(PATIENCE, "two sentinels answer in time", async || {
        let (verdict, said) = found("sentinels").await;
        verdict == Verdict::Warn && said.starts_with("2 of 3 answer")
    })
    .await;
    assert_eq!(found("split").await.0, Verdict::Ok);
}
