//! The machine starts anew.

use super::Place;

#[test]
fn nothing_stays_locked_over_a_restart_of_the_machine() {
    let place = Place::new();
    let client = place.connect();
    client.lock("a").acquire().expect("it is free").forget();
    // As a machine that was switched off leaves it.
    drop(client);
    assert_eq!(place.rows("states"), 1, "it was left locked");
    started_before(&place.database());
    let client = place.connect_after_the_others();
    let guard = client.lock("a").try_acquire().expect("it answers");
    assert!(guard.is_some(), "that was before");
}

#[test]
fn a_file_that_another_machine_uses_is_refused() {
    let place = Place::new();
    let here = place.connect();
    let guard = here.lock("a").acquire().expect("it is free");
    // To whoever comes now, the one who is there is of another start.
    started_before(&place.database());
    let error = distlock::blocking::Client::connect(&place.url()).expect_err("two machines");
    assert!(error.to_string().contains("another machine"), "{error}");
    assert!(guard.is_held());
}

/// As if the machine had been started since.
pub(crate) fn started_before(database: &rusqlite::Connection) {
    let changed = database.execute("UPDATE machine SET boot = 'before'", []);
    assert_eq!(changed.expect("it works"), 1);
}
