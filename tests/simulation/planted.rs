//! Plays scenarios with one planted bug (`DISTLOCK_PLANTED`) until a judge sees it. `scripts/planted` runs this once for each bug.

use std::env;

use distlock::simulation::{Bug, active, bugs, was_reached};

use crate::scenario::Scenario;

/// The scenarios that may show each bug.
const FITTING: &[(&str, &[&str])] = &[
    ("ValidityFromReply", &["slow-replies-plain"]),
    ("RenewalFromReply", &["slow-replies-plain"]),
    ("NoDriftAllowance", &["long-holds-plain"]),
    ("FailedRenewalCounts", &["long-holds-plain"]),
    ("RefusedRenewalCounts", &["robbery-plain"]),
    ("LossNotTold", &["plain", "robbery-plain"]),
    (
        "LateRenewalRevives",
        &["slow-replies-plain", "long-holds-plain"],
    ),
    ("RenewedTooLate", &["calm-plain"]),
    ("WatchdogGivesUp", &["blips-plain"]),
    ("OnlyFirstRenewed", &["calm-read"]),
    ("RestartNotNoticed", &["forgets-plain"]),
    ("RemainingTwice", &["calm-plain"]),
    ("MaxHoldIgnored", &["max-hold"]),
    ("CloseKeepsHolds", &["closing"]),
    ("CloseForgetsWaiters", &["closing"]),
    ("CancelledAcquireKept", &["calm-plain", "long-leases-plain"]),
    ("LateGrantKept", &["calm-plain", "long-leases-plain"]),
    ("LostReplyDidNothing", &["long-leases-plain"]),
    ("CleanupGivesUp", &["long-leases-plain"]),
    ("LateReleaseIsOk", &["long-holds-plain", "robbery-plain"]),
    ("PanicInCleanup", &["calm-plain"]),
    ("DroppedGuardKept", &["calm-plain"]),
    ("ReentryNotUndone", &["nested"]),
    ("InnerReleaseTakesAll", &["nested"]),
    ("InnerReleaseStopsRenewal", &["nested"]),
    ("OwnerUsedAgain", &["calm-plain"]),
    ("SilenceMeansBusy", &["fresh-names"]),
    ("SubscribedTooLate", &["alone-plain"]),
    ("NoWakeAfterReconnect", &["reconnects-plain"]),
    ("NeverAsksByItself", &["crashes-plain", "crashes-permits"]),
    ("GivesUpEarly", &["plain"]),
    ("CancelledHeadKeepsTurn", &["calm-plain"]),
    ("NextNotCalled", &["calm-plain"]),
    ("HandedTwice", &["crowd-plain"]),
    ("HandedForEver", &["crowd-plain"]),
    ("HandedAndReleased", &["calm-plain"]),
    ("PassedToNobody", &["single-fenced"]),
    ("RepliesMixedUp", &["fresh-names"]),
    ("SilentConnectionKept", &["plain"]),
    ("AcksIgnored", &["promotions-plain"]),
    ("DelayIgnored", &["delays-plain"]),
    ("RetryIsNew", &["permit-counts", "latches"]),
    ("QuorumOfTwo", &["quorum-restarts"]),
    ("YoungServerVotes", &["quorum-restarts"]),
    ("PartOfManyKept", &["several"]),
    ("LeavingSilencesOthers", &["latches"]),
    ("ReleaseOfAnybody", &["plain", "long-holds-plain"]),
    ("SimpleReleaseOfAnybody", &["simple", "long-holds-simple"]),
    ("SimpleGrantedTwice", &["calm-simple"]),
    ("MarkIgnored", &["long-leases-plain"]),
    ("NoMarkLeft", &["long-leases-plain"]),
    ("RenewalMakesHold", &["robbery-plain", "long-holds-plain"]),
    ("RenewalShortens", &["nested"]),
    ("ReentryShortens", &["nested"]),
    ("NoTimeToLive", &["calm-plain"]),
    ("SilentRelease", &["calm-plain"]),
    ("TokenRepeats", &["calm-fenced"]),
    ("TokensBeginAnew", &["forgets-fenced"]),
    ("FairOvertakes", &["calm-fair"]),
    ("FairWaitsForCrashed", &["crashes-fair"]),
    ("FairEntryKept", &["calm-fair"]),
    ("FairSilentRelease", &["calm-fair"]),
    ("FairCountsRequests", &["cuts-fair"]),
    ("ReaderReleasesAll", &["readers-and-writers"]),
    ("ReaderRemovesWriter", &["readers-and-writers"]),
    ("WriterBesideReader", &["readers-and-writers"]),
    ("ReaderBesideWriter", &["readers-and-writers"]),
    ("ReaderNotRenewed", &["readers-and-writers"]),
    ("WritersStarve", &["readers-and-writers"]),
    ("PermitReturnedTwice", &["calm-permits"]),
    ("UndoMakesPermit", &["calm-permits"]),
    ("OnePermitTooMany", &["calm-permits"]),
    ("PermitGone", &["crashes-permits"]),
    ("CountsOneTooMany", &["permit-counts"]),
    ("DeedForgotten", &["permit-counts", "latches"]),
    ("LatchOpensEarly", &["latches"]),
    ("LatchSilent", &["latches"]),
];

/// Returns the findings of the judges in a run; the reason of a run that did not complete counts as found, too.
pub(crate) fn play(scenario: &str, seed: u64) -> Vec<String> {
    match found(scenario, seed) {
        Ok(found) => found.into_iter().collect(),
        Err(error) => vec![error],
    }
}

/// Returns the first finding of a judge.
fn found(scenario: &str, seed: u64) -> Result<Option<String>, String> {
    let outcome = Scenario::named(scenario).play(seed)?;
    let first = outcome.summary.violations.into_iter().next();
    Ok(first.map(|found| {
        let what = found.what.split(';').next().unwrap_or_default();
        format!("{:?}: {what}", found.judge)
    }))
}

/// Prints the planted bugs, each with the scenarios that may show it.
#[test]
fn every_bug_has_a_scenario() {
    for bug in bugs() {
        let (name, sentence) = (bug.name, bug.sentence.trim());
        let fitting = fitting(name).join(" ");
        eprintln!("bug\t{name}\t{sentence}\t{fitting}");
    }
    let misplaced: Vec<_> = bugs().iter().flat_map(Bug::misplaced_edits).collect();
    assert!(
        misplaced.is_empty(),
        "edits that plant nothing: {misplaced:#?}"
    );
    assert_eq!(bugs().len(), FITTING.len());
    let scenarios = FITTING.iter().flat_map(|(_, scenarios)| *scenarios);
    scenarios.for_each(|name| assert!(Scenario::find(name).is_some(), "no scenario `{name}`"));
}

fn fitting(name: &str) -> &'static [&'static str] {
    let found = FITTING.iter().find(|(bug, _)| *bug == name);
    found.unwrap_or_else(|| panic!("no scenario fits {name}")).1
}

/// A run that does not complete is an error of the test, and shows nothing.
#[test]
#[ignore = "`scripts/planted` names the bug"]
fn a_judge_detects_the_bug() {
    let bug = active().expect("DISTLOCK_PLANTED names a bug");
    let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    let seeds = match number("DISTLOCK_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("DISTLOCK_SEEDS").unwrap_or(1),
    };
    let named = env::var("DISTLOCK_SCENARIOS").unwrap_or_default();
    let scenarios = match named.is_empty() {
        true => fitting(bug.name).to_vec(),
        false => named.split_whitespace().collect(),
    };
    for (count, seed) in (1..).zip(seeds) {
        for scenario in &scenarios {
            let found = found(scenario, seed);
            let found = found.unwrap_or_else(|error| {
                panic!("error of the run: {scenario}, seed {seed}: {error}")
            });
            if let Some(found) = found {
                eprintln!("found\t{scenario}\t{found}\t{count}");
                return;
            }
        }
    }
    let never = if was_reached() { "" } else { "never " };
    panic!("{} was not found; it was {never}reached", bug.name);
}
