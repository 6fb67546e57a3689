//! Plays scenarios with one planted bug (`DISTLOCK_PLANTED`) until a judge sees it; without one, no judge may see anything.
//! `scripts/planted` runs this once for each bug.

use std::panic::{AssertUnwindSafe, catch_unwind};

use distlock::simulation::{active, bugs, was_reached};

use crate::run::SCENARIOS;
use crate::stories::{OTHERS, STORIES, seeds};

/// The scenarios that may show each bug.
const FITTING: &[(&str, &[&str])] = &[
    ("ValidityFromReply", &["slow_replies plain"]),
    ("RenewalFromReply", &["slow_replies plain"]),
    ("NoDriftAllowance", &["long_holds plain"]),
    ("FailedRenewalCounts", &["long_holds plain"]),
    ("RefusedRenewalCounts", &["robbery plain"]),
    ("LossNotTold", &["plain", "robbery plain"]),
    (
        "LateRenewalRevives",
        &["slow_replies plain", "long_holds plain"],
    ),
    ("RenewedTooLate", &["calm plain"]),
    ("WatchdogGivesUp", &["blips plain"]),
    ("OnlyFirstRenewed", &["calm read"]),
    ("RestartNotNoticed", &["forgets plain"]),
    ("MaxHoldIgnored", &["max_hold"]),
    ("CloseKeepsHolds", &["closing"]),
    ("CloseForgetsWaiters", &["closing"]),
    ("CancelledAcquireKept", &["calm plain", "long_leases plain"]),
    ("LateGrantKept", &["calm plain", "long_leases plain"]),
    ("LostReplyDidNothing", &["long_leases plain"]),
    ("CleanupGivesUp", &["long_leases plain"]),
    ("DroppedGuardKept", &["calm plain"]),
    ("ReentryNotUndone", &["nested"]),
    ("InnerReleaseTakesAll", &["nested"]),
    ("InnerReleaseStopsRenewal", &["nested"]),
    ("OwnerUsedAgain", &["calm plain"]),
    ("SilenceMeansBusy", &["fresh_names"]),
    ("SubscribedTooLate", &["alone plain"]),
    ("NoWakeAfterReconnect", &["reconnects plain"]),
    ("NeverAsksByItself", &["crashes plain", "crashes permits"]),
    ("CancelledHeadKeepsTurn", &["calm plain"]),
    ("NextNotCalled", &["calm plain"]),
    ("HandedTwice", &["crowd plain"]),
    ("HandedForEver", &["crowd plain"]),
    ("HandedAndReleased", &["calm plain"]),
    ("PassedToNobody", &["single fenced"]),
    ("RepliesMixedUp", &["fresh_names"]),
    ("SilentConnectionKept", &["plain"]),
    ("AcksIgnored", &["promotions plain"]),
    ("DelayIgnored", &["delays plain"]),
    ("RetryIsNew", &["counting", "latch"]),
    ("QuorumOfTwo", &["quorum"]),
    ("YoungServerVotes", &["quorum"]),
    ("PartOfManyKept", &["several"]),
    ("LeavingSilencesOthers", &["latch"]),
    ("ReleaseOfAnybody", &["plain", "long_holds plain"]),
    ("SimpleReleaseOfAnybody", &["simple", "long_holds simple"]),
    ("SimpleGrantedTwice", &["calm simple"]),
    ("MarkIgnored", &["long_leases plain"]),
    ("NoMarkLeft", &["long_leases plain"]),
    ("RenewalMakesHold", &["robbery plain", "long_holds plain"]),
    ("RenewalShortens", &["nested"]),
    ("ReentryShortens", &["nested"]),
    ("NoTimeToLive", &["calm plain"]),
    ("SilentRelease", &["calm plain"]),
    ("TokenRepeats", &["calm fenced"]),
    ("TokensBeginAnew", &["forgets fenced"]),
    ("FairOvertakes", &["calm fair"]),
    ("FairWaitsForCrashed", &["crashes fair"]),
    ("FairEntryKept", &["calm fair"]),
    ("FairSilentRelease", &["calm fair"]),
    ("FairCountsRequests", &["cuts fair"]),
    ("ReaderReleasesAll", &["read_write"]),
    ("ReaderRemovesWriter", &["read_write"]),
    ("WriterBesideReader", &["read_write"]),
    ("ReaderBesideWriter", &["read_write"]),
    ("ReaderNotRenewed", &["read_write"]),
    ("WritersStarve", &["read_write"]),
    ("PermitReturnedTwice", &["calm permits"]),
    ("UndoMakesPermit", &["calm permits"]),
    ("OnePermitTooMany", &["calm permits"]),
    ("PermitGone", &["crashes permits"]),
    ("CountsOneTooMany", &["counting"]),
    ("DeedForgotten", &["counting", "latch"]),
    ("LatchOpensEarly", &["latch"]),
    ("LatchSilent", &["latch"]),
];

/// Plays a scenario by its name, and a kind where it has several.
pub(crate) fn play(scenario: &str, seed: u64) -> Vec<String> {
    let mut words = scenario.split(' ');
    let (name, kind) = (words.next().unwrap_or_default(), words.next());
    let played = catch_unwind(AssertUnwindSafe(|| {
        if let Some(other) = OTHERS.iter().find(|other| other.name == name) {
            return other.play(seed);
        }
        if let Some(story) = STORIES.iter().find(|story| story.name == name) {
            let kinds = story.kinds.iter();
            let mut kinds = kinds.filter(|of| Some(&*format!("{of:?}").to_lowercase()) == kind);
            let kind = kinds
                .next()
                .unwrap_or_else(|| panic!("`{scenario}` has no such kind"));
            return story.play(*kind, seed);
        }
        let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
        let found = found.unwrap_or_else(|| panic!("there is no scenario `{scenario}`"));
        let seen = found.play(seed).summary.violations.into_iter();
        seen.map(|seen| format!("{:?}: {}", seen.judge, seen.what))
            .collect()
    }));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        vec![format!("panic: {}", text.unwrap_or_default())]
    })
}

/// One line for each, which `scripts/planted` reads.
#[test]
fn list() {
    for bug in bugs() {
        eprintln!("bug\t{}\t{}", bug.name, bug.sentence.trim());
        assert!(fitting(bug.name).is_some(), "no scenario fits {}", bug.name);
    }
    assert_eq!(bugs().len(), FITTING.len());
}

fn fitting(name: &str) -> Option<&'static [&'static str]> {
    let mut all = FITTING.iter();
    all.find(|(bug, _)| *bug == name)
        .map(|(_, fitting)| *fitting)
}

#[test]
fn hunt() {
    let only = std::env::var("DISTLOCK_SCENARIO").ok();
    let Some(bug) = active() else {
        return sound(only.as_deref());
    };
    let fitting = only.as_deref().map(|only| vec![only]);
    let fitting = fitting.unwrap_or_else(|| fitting_of(bug.name).to_vec());
    let begun = std::time::Instant::now();
    for (seeds, seed) in (1..).zip(seeds()) {
        for scenario in &fitting {
            if let Some(violation) = play(scenario, seed).first() {
                let took = begun.elapsed().as_secs_f64();
                eprintln!(
                    "found\t{}\t{scenario}\t{violation}\t{seeds}\t{took:.1}",
                    bug.name
                );
                return;
            }
        }
    }
    let reached = if was_reached() {
        "reached"
    } else {
        "never reached"
    };
    panic!("{} was not found; it was {reached}", bug.name);
}

fn fitting_of(name: &str) -> &'static [&'static str] {
    fitting(name).expect("`list` has seen to it")
}

/// Without a bug the judges see nothing.
fn sound(only: Option<&str>) {
    let mut names: Vec<&str> = FITTING
        .iter()
        .flat_map(|(_, fitting)| *fitting)
        .copied()
        .collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| only.is_none_or(|only| only == *name));
    let mut wrong = Vec::new();
    for name in names {
        for seed in seeds() {
            let violations = play(name, seed);
            if !violations.is_empty() {
                wrong.push(format!("{name}, seed {seed}: {violations:?}"));
            }
        }
        eprintln!("sound\t{name}\t{} seeds", seeds().count());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
