//! Fencing tokens keep increasing after the clients that acquired them have gone.

use std::fs;
use std::sync::mpsc::Receiver;

use distlock::blocking::Client;
use distlock::{Error, FencingToken};

use super::support::process::{Process, say, url};
use super::{StoreFile, restart};

/// The role of a process that acquires the lock, reports its token, and keeps the lock.
pub(crate) const ROLE: &str = "fenced";

/// A token far ahead of the calendar, so that only a remembered token can be greater.
const AHEAD: u64 = 4_000_000_000_000_000;

#[test]
fn tokens_continue_after_all_clients_have_left() {
    let place = StoreFile::new();
    let before = token(&place);
    far_ahead(&place);
    let after = token(&place);
    assert!(after > before);
    assert_eq!(after.number(), AHEAD + 1);
    assert_eq!(token(&place).number(), AHEAD + 2);
}

#[test]
fn tokens_continue_after_a_restart_of_the_machine() {
    let place = StoreFile::new();
    token(&place);
    far_ahead(&place);
    restart::started_before(&place.database());
    drop(place.connect_after_the_others());
    assert_eq!(token(&place).number(), AHEAD + 1);
}

#[test]
fn tokens_continue_from_those_of_a_killed_process() {
    let place = StoreFile::new();
    token(&place);
    far_ahead(&place);
    for number in 1..=3 {
        let mut holder = Process::start(ROLE, &place.url());
        assert_eq!(holder.expect_line("token"), (AHEAD + number).to_string());
        holder.kill();
    }
    assert_eq!(token(&place).number(), AHEAD + 4);
}

#[test]
fn tokens_continue_from_the_clock_in_a_new_file() {
    let (old, new) = (StoreFile::new(), StoreFile::new());
    let before = token(&old);
    assert!(token(&new) > before);
}

/// The file is the only memory of tokens: without it, only the calendar goes on.
#[test]
fn tokens_continue_from_the_clock_after_the_file_was_removed() {
    let place = StoreFile::new();
    let before = token(&place);
    remove(&place);
    let after = token(&place);
    assert!(after > before, "{after} after {before}");
    far_ahead(&place);
    assert_eq!(token(&place).number(), AHEAD + 1);
    remove(&place);
    let after = token(&place);
    assert!(after > before && after.number() < AHEAD, "{after}");
}

#[test]
fn one_counter_serves_all_locks_of_a_file() {
    let place = StoreFile::new();
    let client = place.connect();
    let mut last = FencingToken::new(0);
    for name in ["a", "b", "a", "c"] {
        let guard = client.fenced_lock(name).acquire().expect("it is free");
        assert!(guard.token() > last);
        last = guard.token();
    }
    assert_eq!(place.rows("tokens"), 1);
}

/// Returns the token of a client that connects for one lock, and closes.
fn token(place: &StoreFile) -> FencingToken {
    let client = place.connect();
    let guard = client.fenced_lock("stock").acquire().expect("it is free");
    let token = guard.token();
    guard.release().expect("it is ours");
    client.close().expect("it is there");
    token
}

pub(crate) fn hold(orders: &Receiver<String>) -> Result<(), Error> {
    let client = Client::connect(&url())?;
    let guard = client.fenced_lock("stock").acquire()?;
    say(&format!("token {}", guard.token()));
    // The process runs until the test ends it.
    while orders.recv().is_ok() {}
    Ok(())
}

fn remove(place: &StoreFile) {
    for end in ["", "-wal", "-shm"] {
        // SQLite has removed the others itself, unless a process was killed.
        let _ = fs::remove_file(place.folder.path().join(format!("locks.db{end}")));
    }
    assert!(!place.file().exists());
}

fn far_ahead(place: &StoreFile) {
    let changed = place
        .database()
        .execute("UPDATE tokens SET last = ?1", [AHEAD.cast_signed()]);
    assert_eq!(changed.expect("it works"), 1);
}
