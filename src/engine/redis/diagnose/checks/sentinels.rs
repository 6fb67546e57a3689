//! Findings about sentinels.

use crate::engine::redis::sentinel::SentinelDetails;
use crate::engine::{Diagnostic, StoreError};

/// Replies of the sentinels that the address names: for each its address and its view.
pub(in crate::engine::redis) type SentinelResults =
    [(String, Result<SentinelDetails, StoreError>)];

/// With fewer sentinels, the loss of one leaves no majority.
const MIN_MEMBERS: usize = 3;

pub(in crate::engine::redis::diagnose) fn sentinels(seen: &SentinelResults) -> Diagnostic {
    let what = "sentinels";
    let replies = seen.iter().filter_map(|(_, seen)| seen.as_ref().ok());
    let replied = replies.clone().count();
    let known = replies.clone().map(|details| details.sentinels).max();
    let all = known.unwrap_or(0).max(seen.len());
    let quorum = replies.map(|details| details.quorum).max().unwrap_or(0);
    let silent = seen.iter().filter_map(|(addr, seen)| {
        let failure = seen.as_ref().err()?;
        Some(format!("{addr}: {}", failure.detail))
    });
    let silent: Vec<String> = silent.collect();
    let mut found = format!(
        "{replied} of {} reply, of {all} in all, quorum {quorum}",
        seen.len()
    );
    if !silent.is_empty() {
        found += &format!(" ({})", silent.join("; "));
    }
    if replied == 0 {
        return Diagnostic::fail(
            what,
            found,
            "check that the sentinels run: only they replace a failed master",
        );
    }
    if all < MIN_MEMBERS {
        let advice = "run at least three, on separate machines: with fewer, the loss of one leaves no majority";
        return Diagnostic::warn(what, found, advice);
    }
    if quorum <= all / 2 {
        let advice = "set the quorum to a majority of them: otherwise a few may declare a running master down";
        return Diagnostic::warn(what, found, advice);
    }
    if !silent.is_empty() {
        return Diagnostic::warn(what, found, "check the sentinels that do not reply");
    }
    Diagnostic::ok(what, found)
}

pub(in crate::engine::redis::diagnose) fn replicas(seen: &SentinelResults) -> Option<Diagnostic> {
    let what = "replicas";
    let mut replies = seen.iter().filter_map(|(_, seen)| seen.as_ref().ok());
    let SentinelDetails {
        following,
        replicas,
        ..
    } = *replies.next()?;
    let found = format!("{following} of {replicas} replicas follow the master");
    Some(match (following, replicas) {
        (_, 0) => Diagnostic::warn(
            what,
            "none: if the master fails, no replica can be promoted",
            "run two replicas on separate machines",
        ),
        (following, replicas) if following < replicas => {
            Diagnostic::warn(what, found, "check the replicas that do not follow")
        }
        _ => Diagnostic::ok(what, found),
    })
}

/// Checks `min-replicas-to-write`: without it, a master that is cut off from its replicas continues to grant locks.
pub(in crate::engine::redis::diagnose) fn split(min_replicas: Option<&str>) -> Diagnostic {
    let what = "split";
    match min_replicas {
        None => super::unknown(what, "check that min-replicas-to-write is 1 or more"),
        Some("0") => Diagnostic::warn(
            what,
            "a master that is cut off continues to grant locks (min-replicas-to-write 0)",
            "set min-replicas-to-write 1 and min-replicas-max-lag 10",
        ),
        Some(least) => Diagnostic::ok(
            what,
            format!("a master without {least} replica(s) grants no locks"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Severity, StoreErrorKind};

    const GOOD: SentinelDetails = SentinelDetails {
        quorum: 2,
        sentinels: 3,
        following: 2,
        replicas: 2,
    };

    fn seen(
        answers: &[Option<SentinelDetails>],
    ) -> Vec<(String, Result<SentinelDetails, StoreError>)> {
        let refused = || StoreError::new(StoreErrorKind::Unreachable, "connection refused");
        let answers = answers.iter().zip(1..);
        let seen = answers.map(|(answer, port)| (format!("h:{port}"), answer.ok_or_else(refused)));
        seen.collect()
    }

    fn verdict(finding: &Diagnostic) -> (Severity, &str) {
        assert_eq!(
            finding.advice.is_none(),
            finding.severity == Severity::Ok,
            "{finding:?}"
        );
        (finding.severity, &finding.found)
    }

    #[test]
    fn three_responding_sentinels_are_enough() {
        let all = seen(&[Some(GOOD); 3]);
        let found = "3 of 3 reply, of 3 in all, quorum 2";
        assert_eq!(verdict(&sentinels(&all)), (Severity::Ok, found));
        // Three sentinels are also enough if the address names only one of them.
        let one = seen(&[Some(GOOD)]);
        assert_eq!(verdict(&sentinels(&one)).0, Severity::Ok);
    }

    #[test]
    fn fewer_than_three_sentinels_warn() {
        let one = SentinelDetails {
            sentinels: 1,
            quorum: 1,
            ..GOOD
        };
        assert_eq!(verdict(&sentinels(&seen(&[Some(one)]))).0, Severity::Warn);
        let two = SentinelDetails {
            sentinels: 2,
            ..GOOD
        };
        assert_eq!(
            verdict(&sentinels(&seen(&[Some(two); 2]))).0,
            Severity::Warn
        );
        let silent = seen(&[Some(GOOD), None, Some(GOOD)]);
        let found = "2 of 3 reply, of 3 in all, quorum 2 (h:2: connection refused)";
        assert_eq!(verdict(&sentinels(&silent)), (Severity::Warn, found));
        assert_eq!(verdict(&sentinels(&seen(&[None; 3]))).0, Severity::Fail);
        let hasty = SentinelDetails { quorum: 1, ..GOOD };
        assert_eq!(
            verdict(&sentinels(&seen(&[Some(hasty); 3]))).0,
            Severity::Warn
        );
    }

    #[test]
    fn replicas_that_do_not_follow_are_counted() {
        let followed = replicas(&seen(&[None, Some(GOOD)])).expect("one answers");
        assert_eq!(
            verdict(&followed),
            (Severity::Ok, "2 of 2 replicas follow the master")
        );
        let lost = SentinelDetails {
            following: 1,
            ..GOOD
        };
        let lost = replicas(&seen(&[Some(lost)])).expect("one answers");
        assert_eq!(
            verdict(&lost),
            (Severity::Warn, "1 of 2 replicas follow the master")
        );
        let none = SentinelDetails {
            following: 0,
            replicas: 0,
            ..GOOD
        };
        let none = replicas(&seen(&[Some(none)])).expect("one answers");
        assert_eq!(verdict(&none).0, Severity::Warn);
        assert!(replicas(&seen(&[None])).is_none());
    }

    #[test]
    fn a_partitioned_master_must_stop_accepting_writes() {
        assert_eq!(verdict(&split(Some("0"))).0, Severity::Warn);
        assert_eq!(verdict(&split(Some("1"))).0, Severity::Ok);
        assert_eq!(verdict(&split(None)).0, Severity::Warn);
    }
}
