//! Another program has locked the whole file.

use std::time::{Duration, Instant};

use distlock::Error;
use distlock::blocking::Client;

use super::support::process::Process;
use super::worker::WAIT;
use super::{PATIENCE, StoreFile, wait_until};

#[test]
fn an_exclusively_locked_file_is_waited_for_and_then_reported() {
    let place = StoreFile::new();
    let client = Client::connect_with(
        distlock::Client::builder(&place.url()).command_timeout(Duration::from_secs(2)),
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
    wait_until("it is had", || {
        let got = client.lock("a").acquire_timeout(PATIENCE);
        got.is_ok_and(|guard| guard.is_some())
    });
}

#[test]
fn a_short_pause_causes_no_error() {
    let place = StoreFile::new();
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

#[test]
fn a_waiter_for_the_file_does_not_spin() {
    let place = StoreFile::new();
    let mut waiter = Process::start(WAIT, &place.url());
    // A first round that does not count: the worker has started, and all one-time work is done.
    waiter.send_line("wait");
    waiter.expect_line("waiting");
    waiter.expect_line("got");
    wait_until("it is given back", || place.rows("states") == 0);
    let other = place.database();
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("nobody is writing");
    let (before, begun) = (waiter.processor_time(), Instant::now());
    waiter.send_line("wait");
    waiter.expect_line("waiting");
    std::thread::sleep(WHILE);
    let spent = waiter.processor_time() - before;
    let time = begun.elapsed();
    other.execute_batch("ROLLBACK").expect("it was begun");
    waiter.expect_line("got");
    eprintln!("{spent:?} of processor time in {time:?}");
    assert!(spent < time / 5, "{spent:?}");
}

/// The time for which another program locks the file: shorter than the command timeout.
const WHILE: Duration = Duration::from_secs(1);
