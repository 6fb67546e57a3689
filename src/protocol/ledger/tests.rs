//! Looks and messages in every order, and each thing told once.

use std::time::Duration;

use super::*;
use crate::protocol::Kind;

fn at(millis: u64) -> Moment {
    Moment::at(Duration::from_millis(millis))
}

/// A lock: name, owner and what is left of the lease in milliseconds.
fn lock(name: &str, owner: &str, ttl: u64) -> Seen {
    let ttl = Some(Duration::from_millis(ttl));
    let holding = Holding {
        owners: vec![HeldBy {
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
    Seen {
        name: name.to_owned(),
        kind: Kind::Mutex,
        holding,
        labels: vec![None],
    }
}

fn changed(name: &str, owner: &str, change: Change) -> Changed {
    Changed {
        name: name.to_owned(),
        kind: Some(Kind::Mutex),
        owner: owner.to_owned(),
        label: None,
        change,
    }
}

/// A ledger after its first look.
fn begun(locks: &[Seen]) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.begin_look();
    ledger.looked(locks, at(0));
    told(&mut ledger);
    ledger
}

fn look(ledger: &mut Ledger, locks: &[Seen], now: u64) {
    ledger.begin_look();
    ledger.looked(locks, at(now));
}

/// What it tells: name, owner or `?`, and what.
fn told(ledger: &mut Ledger) -> Vec<(String, String, Change)> {
    let events = std::iter::from_fn(|| ledger.pop());
    events
        .map(|event| {
            let owner = event.owner.unwrap_or_else(|| "?".to_owned());
            (event.name, owner, event.change)
        })
        .collect()
}

fn expect(ledger: &mut Ledger, expected: &[(&str, &str, Change)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, owner, what)| ((*name).to_owned(), (*owner).to_owned(), *what))
        .collect();
    assert_eq!(told(ledger), expected);
}

#[test]
fn a_hold_that_goes_on_is_no_event() {
    let mut ledger = begun(&[lock("a", "x", 10_000)]);
    look(&mut ledger, &[lock("a", "x", 30_000)], 100);
    expect(&mut ledger, &[]);
}

#[test]
fn a_holder_that_changed_is_a_release_and_a_grant() {
    let mut ledger = begun(&[lock("a", "x", 30_000), lock("b", "x", 30_000)]);
    let now = [lock("a", "y", 30_000), lock("c", "z", 30_000)];
    look(&mut ledger, &now, 100);
    let expected = [
        ("a", "x", Change::Released),
        ("a", "y", Change::Granted),
        ("b", "x", Change::Released),
        ("c", "z", Change::Granted),
    ];
    expect(&mut ledger, &expected);
}

#[test]
fn a_lease_that_ran_out_is_told_from_a_release() {
    let mut ledger = begun(&[lock("a", "x", 90), lock("b", "x", 200)]);
    look(&mut ledger, &[], 100);
    let expected = [("a", "x", Change::Expired), ("b", "x", Change::Released)];
    expect(&mut ledger, &expected);
}

#[test]
fn the_first_look_tells_what_is_held_and_no_more_than_was_heard_meanwhile() {
    let mut ledger = Ledger::default();
    ledger.begin_look();
    ledger.changed(changed("b", "y", Change::Released), at(0));
    ledger.changed(changed("b", "z", Change::Granted), at(0));
    ledger.looked(&[lock("a", "x", 100), lock("b", "y", 100)], at(1));
    let expected = [
        ("b", "y", Change::Released),
        ("b", "z", Change::Granted),
        ("a", "x", Change::Held),
    ];
    expect(&mut ledger, &expected);
}

#[test]
fn what_was_heard_is_not_told_again_by_a_look() {
    let mut ledger = begun(&[]);
    ledger.begin_look();
    ledger.changed(changed("a", "x", Change::Granted), at(1));
    ledger.changed(changed("a", "x", Change::Forced), at(2));
    ledger.changed(changed("a", "y", Change::Granted), at(3));
    // It looked before all that, or in the middle of it.
    ledger.looked(&[lock("a", "x", 100)], at(4));
    let expected = [
        ("a", "x", Change::Granted),
        ("a", "x", Change::Forced),
        ("a", "y", Change::Granted),
    ];
    expect(&mut ledger, &expected);
    look(&mut ledger, &[lock("a", "y", 100)], 5);
    expect(&mut ledger, &[]);
}

#[test]
fn what_a_look_has_shown_is_not_told_again_when_it_is_heard() {
    let mut ledger = begun(&[]);
    look(&mut ledger, &[lock("a", "x", 100)], 1);
    ledger.changed(changed("a", "x", Change::Granted), at(2));
    expect(&mut ledger, &[("a", "x", Change::Granted)]);
    // Nobody asked for it for an hour; then the store notices, too.
    look(&mut ledger, &[], 101);
    ledger.changed(changed("a", "x", Change::Expired), at(3_600_000));
    expect(&mut ledger, &[("a", "x", Change::Expired)]);
}

#[test]
fn a_hold_that_is_gone_without_a_word_has_expired_unless_words_were_missed() {
    for (missed, what) in [(false, Change::Expired), (true, Change::Released)] {
        let mut ledger = begun(&[]);
        ledger.changed(changed("a", "x", Change::Granted), at(1));
        told(&mut ledger);
        if missed {
            ledger.missed();
        }
        look(&mut ledger, &[], 2);
        expect(&mut ledger, &[("a", "x", what)]);
    }
}

#[test]
fn a_message_ends_only_holds_that_the_store_no_longer_has() {
    let mut ledger = begun(&[lock("a", "x", 100)]);
    ledger.freed("a", Some(&lock("a", "y", 100)), at(1));
    let expected = [("a", "x", Change::Released), ("a", "y", Change::Granted)];
    expect(&mut ledger, &expected);
    // From another database, or about a hold that nobody saw.
    ledger.freed("a", Some(&lock("a", "y", 90)), at(2));
    ledger.freed("other", None, at(2));
    expect(&mut ledger, &[]);
    ledger.freed("a", None, at(3));
    ledger.freed("a", None, at(4));
    expect(&mut ledger, &[("a", "y", Change::Released)]);
}

#[test]
fn a_message_comes_before_what_a_look_under_way_shows() {
    let mut ledger = begun(&[lock("a", "x", 100)]);
    ledger.begin_look();
    ledger.heard_of("a");
    ledger.looked(&[], at(1));
    expect(&mut ledger, &[]);
    ledger.freed("a", None, at(2));
    expect(&mut ledger, &[("a", "x", Change::Released)]);
}

#[test]
fn a_grant_waits_for_its_label_and_gets_it_from_its_end() {
    let mut ledger = begun(&[]);
    ledger.changed(changed("a", "x:1", Change::Granted), at(1));
    assert_eq!(ledger.waits_since(), Some(at(1)));
    let mut end = changed("a", "x:1", Change::Released);
    end.label = Some("me".to_owned());
    ledger.changed(end, at(2));
    assert_eq!(ledger.waits_since(), None);
    for what in [Change::Granted, Change::Released] {
        let event = ledger.pop().expect("there are two");
        assert_eq!((event.change, event.label.as_deref()), (what, Some("me")));
    }
}

#[test]
fn a_grant_without_a_label_is_told_when_there_is_none() {
    let mut ledger = begun(&[]);
    ledger.changed(changed("a", "x:1", Change::Granted), at(1));
    ledger.changed(changed("b", "y:1", Change::Granted), at(1));
    ledger.changed(changed("c", "z:1", Change::Granted), at(9));
    let clients = ledger.unlabelled(at(5));
    assert_eq!(clients, BTreeSet::from(["x".to_owned(), "y".to_owned()]));
    let labels = [("x", Some("me")), ("y", None)];
    let labels = labels.map(|(client, label)| (client.to_owned(), label.map(str::to_owned)));
    ledger.label(&labels.into());
    let label = |event: Option<Event>| event.and_then(|event| event.label);
    assert_eq!(label(ledger.pop()).as_deref(), Some("me"));
    assert_eq!(ledger.waits_since(), None);
    assert_eq!(label(ledger.pop()), None);
    assert_eq!(ledger.waits_since(), Some(at(9)));
    // And its end says it, too.
    ledger.changed(changed("a", "x:1", Change::Released), at(10));
    ledger.pop();
    assert_eq!(label(ledger.pop()).as_deref(), Some("me"));
}

#[test]
fn who_held_it_before_something_was_missed_has_left_before_the_next_is_told_of() {
    let mut ledger = begun(&[lock("a", "x", 60_000), lock("b", "x", 60_000)]);
    ledger.missed();
    ledger.changed(changed("a", "y", Change::Released), at(10));
    ledger.changed(changed("a", "z", Change::Granted), at(11));
    look(
        &mut ledger,
        &[lock("a", "z", 60_000), lock("b", "x", 60_000)],
        20,
    );
    expect(
        &mut ledger,
        &[
            ("a", "x", Change::Released),
            ("a", "y", Change::Released),
            ("a", "z", Change::Granted),
        ],
    );
}

#[test]
fn a_message_about_another_hold_is_not_taken_for_the_release_of_one_that_ran_out() {
    let mut ledger = begun(&[lock("a", "x", 90)]);
    ledger.freed("a", None, at(100));
    expect(&mut ledger, &[("a", "x", Change::Expired)]);
}

#[test]
fn a_reader_ends_no_other_reader_however_much_was_missed() {
    let mut ledger = begun(&[]);
    let reads = |owner: &str, change| Changed {
        kind: Some(Kind::Read),
        ..changed("a", owner, change)
    };
    ledger.changed(reads("one", Change::Granted), at(10));
    ledger.missed();
    ledger.changed(reads("two", Change::Granted), at(20));
    let granted = |owner: &str| ("a".to_owned(), owner.to_owned(), Change::Granted);
    assert_eq!(told(&mut ledger), [granted("one"), granted("two")]);
}

#[test]
fn each_event_says_of_which_kind_its_lock_is() {
    let mut ledger = begun(&[]);
    let fair = |owner: &str, kind, change| Changed {
        kind: Some(kind),
        ..changed("a", owner, change)
    };
    ledger.changed(fair("one", Kind::Fair, Change::Granted), at(10));
    // A look cannot tell a fair lock for which nobody waits from a plain one.
    look(&mut ledger, &[lock("a", "one", 1000)], 20);
    // It was forced open, as whatever it is.
    ledger.changed(fair("one", Kind::Mutex, Change::Forced), at(30));
    ledger.changed(fair("two", Kind::Fenced, Change::Granted), at(40));
    let kinds: Vec<_> = std::iter::from_fn(|| ledger.pop())
        .map(|event| event.kind)
        .collect();
    let fair = Some(LockKind::Fair);
    assert_eq!(kinds, [fair, fair, Some(LockKind::Fenced)]);
}
