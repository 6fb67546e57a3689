//! Scans and messages in every order, with each change reported once.

use std::time::Duration;

use super::*;
use crate::protocol::Kind;

fn at(millis: u64) -> Moment {
    Moment::at(Duration::from_millis(millis))
}

/// A lock with its name, its owner and the rest of its lease in milliseconds.
fn lock(name: &str, owner: &str, ttl: u64) -> LabeledSnapshot {
    let ttl = Some(Duration::from_millis(ttl));
    let holding = LockSnapshot {
        owners: vec![HolderSnapshot {
            owner: owner.to_owned(),
            count: 1,
            ttl,
        }],
        ttl,
        token: None,
        waiting: Vec::new(),
        writes: false,
        permits: None,
    };
    LabeledSnapshot {
        name: name.to_owned(),
        kind: Kind::Mutex,
        holding,
        labels: vec![None],
    }
}

fn changed(name: &str, owner: &str, change: Change) -> HoldChange {
    HoldChange {
        name: name.to_owned(),
        kind: Some(Kind::Mutex),
        owner: owner.to_owned(),
        label: None,
        change,
    }
}

/// An event diff after its first scan.
fn begun(locks: &[LabeledSnapshot]) -> EventDiff {
    let mut events = EventDiff::default();
    events.begin_scan();
    events.scan_finished(locks, at(0));
    told(&mut events);
    events
}

fn look(events: &mut EventDiff, locks: &[LabeledSnapshot], now: u64) {
    events.begin_scan();
    events.scan_finished(locks, at(now));
}

/// The events that are reported: name, owner or `?`, and the change.
fn told(events: &mut EventDiff) -> Vec<(String, String, Change)> {
    let events = std::iter::from_fn(|| events.pop());
    events
        .map(|event| {
            let owner = event.owner.unwrap_or_else(|| "?".to_owned());
            (event.name, owner, event.change)
        })
        .collect()
}

fn expect(events: &mut EventDiff, expected: &[(&str, &str, Change)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, owner, what)| ((*name).to_owned(), (*owner).to_owned(), *what))
        .collect();
    assert_eq!(told(events), expected);
}

#[test]
fn an_unchanged_hold_is_no_event() {
    let mut events = begun(&[lock("a", "x", 10_000)]);
    look(&mut events, &[lock("a", "x", 30_000)], 100);
    expect(&mut events, &[]);
}

#[test]
fn a_holder_that_changed_is_a_release_and_a_grant() {
    let mut events = begun(&[lock("a", "x", 30_000), lock("b", "x", 30_000)]);
    let now = [lock("a", "y", 30_000), lock("c", "z", 30_000)];
    look(&mut events, &now, 100);
    let expected = [
        ("a", "x", Change::Released),
        ("a", "y", Change::Granted),
        ("b", "x", Change::Released),
        ("c", "z", Change::Granted),
    ];
    expect(&mut events, &expected);
}

#[test]
fn an_expired_lease_is_distinguished_from_a_release() {
    let mut events = begun(&[lock("a", "x", 90), lock("b", "x", 200)]);
    look(&mut events, &[], 100);
    let expected = [("a", "x", Change::Expired), ("b", "x", Change::Released)];
    expect(&mut events, &expected);
}

#[test]
fn the_first_snapshot_reports_holds_and_no_more_than_the_messages_meanwhile() {
    let mut events = EventDiff::default();
    events.begin_scan();
    events.changed(changed("b", "y", Change::Released), at(0));
    events.changed(changed("b", "z", Change::Granted), at(0));
    events.scan_finished(&[lock("a", "x", 100), lock("b", "y", 100)], at(1));
    let expected = [
        ("b", "y", Change::Released),
        ("b", "z", Change::Granted),
        ("a", "x", Change::Held),
    ];
    expect(&mut events, &expected);
}

#[test]
fn events_of_a_message_are_not_repeated_by_a_snapshot() {
    let mut events = begun(&[]);
    events.begin_scan();
    events.changed(changed("a", "x", Change::Granted), at(1));
    events.changed(changed("a", "x", Change::Forced), at(2));
    events.changed(changed("a", "y", Change::Granted), at(3));
    // The scan took its snapshot before all that, or in the middle of it.
    events.scan_finished(&[lock("a", "x", 100)], at(4));
    let expected = [
        ("a", "x", Change::Granted),
        ("a", "x", Change::Forced),
        ("a", "y", Change::Granted),
    ];
    expect(&mut events, &expected);
    look(&mut events, &[lock("a", "y", 100)], 5);
    expect(&mut events, &[]);
}

#[test]
fn events_of_a_snapshot_are_not_repeated_by_a_message() {
    let mut events = begun(&[]);
    look(&mut events, &[lock("a", "x", 100)], 1);
    events.changed(changed("a", "x", Change::Granted), at(2));
    expect(&mut events, &[("a", "x", Change::Granted)]);
    // No request touched the lock for an hour; then the store notices the expiry, too.
    look(&mut events, &[], 101);
    events.changed(changed("a", "x", Change::Expired), at(3_600_000));
    expect(&mut events, &[("a", "x", Change::Expired)]);
}

#[test]
fn a_hold_gone_without_a_message_has_expired_unless_messages_were_missed() {
    for (missed, what) in [(false, Change::Expired), (true, Change::Released)] {
        let mut events = begun(&[]);
        events.changed(changed("a", "x", Change::Granted), at(1));
        told(&mut events);
        if missed {
            events.missed_notifications();
        }
        look(&mut events, &[], 2);
        expect(&mut events, &[("a", "x", what)]);
    }
}

#[test]
fn a_message_ends_only_holds_that_the_store_no_longer_has() {
    let mut events = begun(&[lock("a", "x", 100)]);
    events.freed("a", Some(&lock("a", "y", 100)), at(1));
    let expected = [("a", "x", Change::Released), ("a", "y", Change::Granted)];
    expect(&mut events, &expected);
    // These messages come from another database, or are about a hold that was never seen.
    events.freed("a", Some(&lock("a", "y", 90)), at(2));
    events.freed("other", None, at(2));
    expect(&mut events, &[]);
    events.freed("a", None, at(3));
    events.freed("a", None, at(4));
    expect(&mut events, &[("a", "y", Change::Released)]);
}

#[test]
fn a_message_precedes_the_events_of_a_snapshot_in_progress() {
    let mut events = begun(&[lock("a", "x", 100)]);
    events.begin_scan();
    events.note_change("a");
    events.scan_finished(&[], at(1));
    expect(&mut events, &[]);
    events.freed("a", None, at(2));
    expect(&mut events, &[("a", "x", Change::Released)]);
}

#[test]
fn a_grant_waits_for_its_label_and_gets_it_from_its_end() {
    let mut events = begun(&[]);
    events.changed(changed("a", "x:1", Change::Granted), at(1));
    assert_eq!(events.waiting_for_label_since(), Some(at(1)));
    let mut end = changed("a", "x:1", Change::Released);
    end.label = Some("me".to_owned());
    events.changed(end, at(2));
    assert_eq!(events.waiting_for_label_since(), None);
    for what in [Change::Granted, Change::Released] {
        let event = events.pop().expect("there are two");
        assert_eq!((event.change, event.label.as_deref()), (what, Some("me")));
    }
}

#[test]
fn a_grant_without_a_label_is_reported_when_there_is_none() {
    let mut events = begun(&[]);
    events.changed(changed("a", "x:1", Change::Granted), at(1));
    events.changed(changed("b", "y:1", Change::Granted), at(1));
    events.changed(changed("c", "z:1", Change::Granted), at(9));
    let clients = events.unlabelled(at(5));
    assert_eq!(clients, BTreeSet::from(["x".to_owned(), "y".to_owned()]));
    let labels = [("x", Some("me")), ("y", None)];
    let labels = labels.map(|(client, label)| (client.to_owned(), label.map(str::to_owned)));
    events.apply_labels(&labels.into());
    let label = |event: Option<Event>| event.and_then(|event| event.label);
    assert_eq!(label(events.pop()).as_deref(), Some("me"));
    assert_eq!(events.waiting_for_label_since(), None);
    assert_eq!(label(events.pop()), None);
    assert_eq!(events.waiting_for_label_since(), Some(at(9)));
    // The end of the hold carries the label, too.
    events.changed(changed("a", "x:1", Change::Released), at(10));
    events.pop();
    assert_eq!(label(events.pop()).as_deref(), Some("me"));
}

#[test]
fn a_holder_from_before_missed_messages_is_released_before_the_next_grant() {
    let mut events = begun(&[lock("a", "x", 60_000), lock("b", "x", 60_000)]);
    events.missed_notifications();
    events.changed(changed("a", "y", Change::Released), at(10));
    events.changed(changed("a", "z", Change::Granted), at(11));
    look(
        &mut events,
        &[lock("a", "z", 60_000), lock("b", "x", 60_000)],
        20,
    );
    expect(
        &mut events,
        &[
            ("a", "x", Change::Released),
            ("a", "y", Change::Released),
            ("a", "z", Change::Granted),
        ],
    );
}

#[test]
fn a_message_about_another_hold_is_not_the_release_of_an_expired_one() {
    let mut events = begun(&[lock("a", "x", 90)]);
    events.freed("a", None, at(100));
    expect(&mut events, &[("a", "x", Change::Expired)]);
}

#[test]
fn a_reader_ends_no_other_reader_after_missed_messages() {
    let mut events = begun(&[]);
    let reads = |owner: &str, change| HoldChange {
        kind: Some(Kind::Read),
        ..changed("a", owner, change)
    };
    events.changed(reads("one", Change::Granted), at(10));
    events.missed_notifications();
    events.changed(reads("two", Change::Granted), at(20));
    let granted = |owner: &str| ("a".to_owned(), owner.to_owned(), Change::Granted);
    assert_eq!(told(&mut events), [granted("one"), granted("two")]);
}

#[test]
fn each_event_names_the_kind_of_its_lock() {
    let mut events = begun(&[]);
    let fair = |owner: &str, kind, change| HoldChange {
        kind: Some(kind),
        ..changed("a", owner, change)
    };
    events.changed(fair("one", Kind::Fair, Change::Granted), at(10));
    // A scan cannot tell a fair lock without waiters from a plain one.
    look(&mut events, &[lock("a", "one", 1000)], 20);
    // A forced release does not depend on the kind that its request names.
    events.changed(fair("one", Kind::Mutex, Change::Forced), at(30));
    events.changed(fair("two", Kind::Fenced, Change::Granted), at(40));
    let kinds: Vec<_> = std::iter::from_fn(|| events.pop())
        .map(|event| event.kind)
        .collect();
    let fair = Some(LockKind::Fair);
    assert_eq!(kinds, [fair, fair, Some(LockKind::Fenced)]);
}
