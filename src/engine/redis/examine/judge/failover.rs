//! What becomes of locks when another server takes the place of this one.

use super::Info;
use crate::engine::Finding;
use crate::engine::redis::assurance::{Assurance, Replicas};

/// What this client asks for beside an answer, against what may happen. Nothing, if nobody could take its place.
pub(in crate::engine::redis::examine) fn failover(
    info: Option<&Info<'_>>,
    assurance: &Assurance,
) -> Option<Finding> {
    let what = "failover";
    let replicas = info?.get("connected_slaves")?.parse().unwrap_or(0);
    let acks = assurance.replicas.map_or(0, |Replicas { acks, .. }| acks);
    if replicas == 0 && assurance.is_none() {
        return None;
    }
    let many = replicas.max(acks);
    Some(match assurance.delay {
        None if acks == 0 => Finding::warn(
            what,
            "may forget the last grants, and let two hold a lock",
            format!("set failover_delay, and {many} acks; docs/guarantees.md says what they do"),
        ),
        None => Finding::warn(
            what,
            format!("{acks} replica(s) acknowledge; a restart without data forgets every lock"),
            "set failover_delay; docs/guarantees.md says what it does",
        ),
        Some(delay) if acks == 0 => Finding::warn(
            what,
            format!("nothing new for {delay:?}; but one that is cut off goes on granting"),
            format!("set {many} acks; docs/guarantees.md says what they do"),
        ),
        Some(_) if acks < replicas => Finding::warn(
            what,
            format!("{acks} of {replicas} replicas acknowledge: another may be promoted"),
            format!("set {replicas} acks: as many as may take its place"),
        ),
        Some(delay) => Finding::ok(
            what,
            format!("{acks} replica(s) acknowledge, and nothing new for {delay:?} after it"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::Verdict;

    fn judged(replicas: u32, acks: u32, delay: bool) -> Option<Verdict> {
        let info = format!("role:master\r\nconnected_slaves:{replicas}\r\n");
        let assurance = Assurance {
            replicas: (acks > 0).then_some(Replicas {
                acks,
                timeout: Duration::from_secs(1),
            }),
            delay: delay.then_some(Duration::from_secs(30)),
        };
        let finding = failover(Some(&Info::new(&info)), &assurance)?;
        let is_fine = finding.verdict == Verdict::Ok;
        assert_eq!(finding.advice.is_none(), is_fine, "{finding:?}");
        Some(finding.verdict)
    }

    #[test]
    fn only_both_with_all_replicas_are_enough() {
        assert_eq!(judged(0, 0, false), None, "nobody could take its place");
        for (replicas, acks, delay, verdict) in [
            (2, 0, false, Verdict::Warn),
            (2, 2, false, Verdict::Warn),
            (2, 0, true, Verdict::Warn),
            (2, 1, true, Verdict::Warn),
            (2, 2, true, Verdict::Ok),
            // One is away; as configured, not as connected.
            (1, 2, true, Verdict::Ok),
        ] {
            let judged = judged(replicas, acks, delay);
            assert_eq!(judged, Some(verdict), "{replicas} {acks} {delay}");
        }
        assert!(failover(None, &Assurance::default()).is_none());
    }
}
