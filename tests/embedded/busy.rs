//! Another program has the file to itself.

use std::time::Duration;

use distlock::Error;
use distlock::blocking::Client;

use super::{PATIENCE, Place};

#[test]
fn a_file_that_another_has_to_itself_is_waited_for_and_then_complained_of() {
    let place = Place::new();
    let client = Client::connect_with(
        distlock::Client::builder(&place.url()).command_timeout(Duration::from_millis(300)),
    )
    .expect("the file can be used");
    let other = place.database();
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("nobody is writing");
    let error = client
        .lock("a")
        .try_acquire()
        .expect_err("it cannot be said");
    assert!(
        matches!(error, Error::Timeout { .. } | Error::Unavailable { .. }),
        "{error:?}"
    );
    assert!(error.is_transient());
    other.execute_batch("ROLLBACK").expect("it was begun");
    let guard = client
        .lock("a")
        .acquire_timeout(PATIENCE)
        .expect("it answers");
    guard.expect("it is free").release().expect("it is ours");
    client.close().expect("it answers");
}

#[test]
fn a_short_pause_is_nobodys_trouble() {
    let place = Place::new();
    let client = place.connect();
    let other = place.database();
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("nobody is writing");
    let waiter = std::thread::spawn(move || client.lock("a").try_acquire());
    std::thread::sleep(Duration::from_millis(300));
    other.execute_batch("ROLLBACK").expect("it was begun");
    let guard = waiter.join().expect("it does not panic");
    assert!(guard.expect("it answers").is_some());
}
