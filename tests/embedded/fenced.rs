//! Tokens outlive whoever asked for them.

use distlock::FencingToken;

use super::{Place, restart};

/// Far ahead of the calendar, so that only what was remembered can be greater.
const AHEAD: u64 = 4_000_000_000_000_000;

#[test]
fn tokens_go_on_after_everybody_has_left() {
    let place = Place::new();
    let before = token(&place);
    far_ahead(&place);
    let after = token(&place);
    assert!(after > before);
    assert_eq!(after.number(), AHEAD + 1);
    assert_eq!(token(&place).number(), AHEAD + 2);
}

#[test]
fn tokens_go_on_after_a_restart_of_the_machine() {
    let place = Place::new();
    token(&place);
    far_ahead(&place);
    restart::started_before(&place.database());
    assert_eq!(token(&place).number(), AHEAD + 1);
}

#[test]
fn tokens_go_on_in_a_new_file_by_the_calendar() {
    let (old, new) = (Place::new(), Place::new());
    let before = token(&old);
    assert!(token(&new) > before);
}

#[test]
fn one_counter_serves_all_locks_of_a_file() {
    let place = Place::new();
    let client = place.connect();
    let mut last = FencingToken::new(0);
    for name in ["a", "b", "a", "c"] {
        let guard = client.fenced_lock(name).acquire().expect("it is free");
        assert!(guard.token() > last);
        last = guard.token();
    }
    assert_eq!(place.rows("tokens"), 1);
}

/// That of a client which comes for one lock, and goes.
fn token(place: &Place) -> FencingToken {
    let client = place.connect();
    let guard = client.fenced_lock("stock").acquire().expect("it is free");
    let token = guard.token();
    guard.release().expect("it is ours");
    client.close().expect("it is there");
    token
}

fn far_ahead(place: &Place) {
    let changed = place
        .database()
        .execute("UPDATE tokens SET last = ?1", [AHEAD.cast_signed()]);
    assert_eq!(changed.expect("it works"), 1);
}
