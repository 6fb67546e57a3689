//! Finding about the safety of locks in a failover.

use std::time::Duration;

use crate::engine::Diagnostic;
use crate::engine::redis::durability::{DurabilityPolicy, ReplicaAcks};
use crate::engine::redis::info::Info;

/// Compares the configured durability with what a failover may lose. Returns `None` if no replica could take over, and no
/// durability is configured.
pub(in crate::engine::redis::diagnose) fn failover(
    info: Option<&Info<'_>>,
    backlog_ttl: Option<&str>,
    durability: &DurabilityPolicy,
) -> Option<Diagnostic> {
    let what = "failover";
    let replicas = info?.get("connected_slaves")?.parse().unwrap_or(0);
    let acks = durability
        .replica_acks
        .map_or(0, |ReplicaAcks { acks, .. }| acks);
    if replicas < acks {
        return Some(Diagnostic::fail(
            what,
            format!(
                "{acks} replica(s) have to acknowledge, and {replicas} follow: no lock is granted"
            ),
            "reconnect the missing replicas; after a failover the old master is one of them",
        ));
    }
    Some(match durability.failover_delay {
        None if replicas == 0 => return None,
        None if acks == 0 => Diagnostic::warn(
            what,
            "a failover may forget the last grants, so that two owners hold a lock",
            "set failover_delay; docs/guarantees.md explains it, and what acks add",
        ),
        None => Diagnostic::warn(
            what,
            format!("{acks} replica(s) acknowledge; a restart without data forgets every lock"),
            "set failover_delay; docs/guarantees.md explains it",
        ),
        Some(delay) if is_forgotten(backlog_ttl, delay) => Diagnostic::warn(
            what,
            format!("a promoted server without replicas forgets its promotion within {delay:?}"),
            "set repl-backlog-ttl to 0, or to more seconds than failover_delay",
        ),
        Some(delay) if replicas == 0 => {
            Diagnostic::ok(what, format!("no new locks for {delay:?} after a restart"))
        }
        Some(delay) if acks == 0 => Diagnostic::ok(
            what,
            format!(
                "no new locks for {delay:?} after a failover; safe if the old master has stopped"
            ),
        ),
        Some(_) if acks < replicas => Diagnostic::warn(
            what,
            format!(
                "{acks} of {replicas} replicas acknowledge: a failover may promote another one"
            ),
            format!("set acks to {replicas}, the number of replicas, or set none"),
        ),
        Some(delay) => Diagnostic::ok(
            what,
            format!(
                "{acks} replica(s) acknowledge, and no new locks for {delay:?} after a failover"
            ),
        ),
    })
}

/// Returns whether a promoted server forgets its promotion within `delay`. It reports the promotion for as long as it keeps its
/// replication backlog; a TTL of 0 means for ever.
fn is_forgotten(backlog_ttl: Option<&str>, delay: Duration) -> bool {
    let ttl = backlog_ttl.and_then(|seconds| seconds.parse().ok());
    ttl.is_some_and(|seconds| seconds > 0 && Duration::from_secs(seconds) <= delay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Severity;

    fn judged(replicas: u32, acks: u32, delay: bool) -> Option<Severity> {
        let info = format!("role:master\r\nconnected_slaves:{replicas}\r\n");
        let durability = DurabilityPolicy {
            replica_acks: (acks > 0).then_some(ReplicaAcks {
                acks,
                timeout: Duration::from_secs(1),
            }),
            failover_delay: delay.then_some(Duration::from_secs(30)),
        };
        let finding = failover(Some(&Info::new(&info)), Some("3600"), &durability)?;
        let is_fine = finding.severity == Severity::Ok;
        assert_eq!(finding.advice.is_none(), is_fine, "{finding:?}");
        Some(finding.severity)
    }

    #[test]
    fn the_delay_is_required_with_acks_of_all_replicas_or_none() {
        assert_eq!(judged(0, 0, false), None, "nobody could take its place");
        for (replicas, acks, delay, verdict) in [
            (2, 0, false, Severity::Warn),
            (2, 2, false, Severity::Warn),
            (0, 0, true, Severity::Ok),
            (2, 0, true, Severity::Ok),
            (2, 1, true, Severity::Warn),
            (2, 2, true, Severity::Ok),
            (1, 2, true, Severity::Fail),
            (0, 1, false, Severity::Fail),
        ] {
            let judged = judged(replicas, acks, delay);
            assert_eq!(judged, Some(verdict), "{replicas} {acks} {delay}");
        }
        assert!(failover(None, None, &DurabilityPolicy::default()).is_none());
        let delay = Duration::from_secs(30);
        for (ttl, forgotten) in [("3600", false), ("0", false), ("30", true), ("?", false)] {
            assert_eq!(is_forgotten(Some(ttl), delay), forgotten, "{ttl}");
        }
    }
}
