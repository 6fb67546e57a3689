//! Watches, and the events that are recorded for them.

use std::time::Duration;

use distlock::blocking::{Client, Watch};

use super::support::process::Process;
use super::worker::{HOLD, WATCH};
use super::{StoreFile, wait_until};

/// More holds than are kept for a watch that is not read.
const TOO_MANY: u32 = 2200;

#[test]
fn nothing_is_journalled_without_a_watcher() {
    let place = StoreFile::new();
    let client = place.connect();
    let mut watch = client.admin().watch("*");
    begins(&place, &mut watch, 1);
    hold_for_a_moment(&client, "a");
    assert_eq!(place.rows("journal"), 2);
    drop(watch);
    wait_until("it is empty", || place.rows("journal") == 0);
    hold_for_a_moment(&client, "a");
    assert_eq!((place.rows("journal"), place.rows("listeners")), (0, 0));
}

#[test]
fn the_journal_is_removed_with_the_last_watcher() {
    let place = StoreFile::new();
    let (client, other) = (place.connect(), place.connect());
    let mut watches = [&client, &client, &other].map(|client| client.admin().watch("*"));
    // The watches of one client are listed once.
    for (watch, listed) in watches.iter_mut().zip([1, 1, 2]) {
        begins(&place, watch, listed);
    }
    let [first, second, third] = watches;
    for gone in [first, third] {
        hold_for_a_moment(&client, "a");
        drop(gone);
    }
    wait_until("one is left", || place.rows("listeners") == 1);
    assert_eq!(place.rows("journal"), 4);
    drop(second);
    wait_until("none is left", || place.rows("listeners") == 0);
    assert_eq!(place.rows("journal"), 0);
}

#[test]
fn a_watcher_that_is_killed_leaves_no_journal() {
    let place = StoreFile::new();
    let client = place.connect();
    let mut watcher = watcher(&place, &client);
    hold_for_a_moment(&client, "a");
    watcher.expect_line("Granted a");
    watcher.expect_line("Released a");
    assert!(place.rows("journal") > 0);
    watcher.kill();
    drop(watcher);
    for _ in 0..3 {
        hold_for_a_moment(&client, "a");
    }
    assert_eq!((place.rows("journal"), place.rows("listeners")), (0, 0));
}

#[test]
fn a_stalled_watcher_does_not_fill_the_file_and_continues() {
    let place = StoreFile::new();
    let client = place.connect();
    let watcher = watcher(&place, &client);
    watcher.stop();
    for _ in 0..TOO_MANY {
        hold_for_a_moment(&client, "a");
    }
    let kept = place.rows("journal");
    assert!(kept < 2 * TOO_MANY, "{kept} rows");
    watcher.resume();
    hold_for_a_moment(&client, "the end");
    let mut told = 0;
    while watcher.expect_line("") != "Released the end" {
        told += 1;
    }
    eprintln!("{kept} rows kept, {told} things told");
    hold_for_a_moment(&client, "a");
    watcher.expect_line("Granted a");
    watcher.expect_line("Released a");
}

#[test]
fn a_watch_reports_that_its_file_was_removed() {
    let place = StoreFile::new();
    let client = place.connect();
    let mut watch = client.admin().watch("*");
    let told = watch.next_timeout(Duration::from_millis(10));
    assert!(told.expect("it answers").is_none());
    std::fs::remove_file(place.file()).expect("it is ours");
    let told = watch.next().expect("it never ends");
    let error = told.expect_err("others may use another by now");
    assert!(error.to_string().contains("removed or replaced"), "{error}");
}

#[test]
fn a_killed_holder_is_distinguished_from_one_that_releases() {
    let place = StoreFile::new();
    let client = place.connect();
    let watcher = watcher(&place, &client);
    let mut holder = Process::start(HOLD, &place.url());
    holder.expect_line("held");
    watcher.expect_line("Granted a");
    wait_until("it has said what it is", || {
        let seen = client.admin().inspect("a").expect("it answers");
        seen.expect("it is held").holders[0].label.is_some()
    });
    holder.kill();
    assert_eq!(watcher.expect_line("Gone a"), "the worker");
}

/// Starts a process that watches, and waits until its watch has begun.
fn watcher(place: &StoreFile, client: &Client) -> Process {
    let mark = client.lock("mark").acquire().expect("it is free");
    let watcher = Process::start(WATCH, &place.url());
    watcher.expect_line("Held mark");
    mark.release().expect("it is ours");
    watcher.expect_line("Released mark");
    watcher
}

fn hold_for_a_moment(client: &Client, name: &str) {
    let held = client.lock(name).acquire().expect("it is free");
    held.release().expect("it is ours");
}

/// Waits until nothing happens and this many listeners are listed: from then on events are recorded.
fn begins(place: &StoreFile, watch: &mut Watch, listed: u32) {
    wait_until("it watches", || {
        let told = watch.next_timeout(A_MOMENT).expect("it answers");
        assert_eq!(told, None);
        place.rows("listeners") == listed
    });
}

/// The time that a watch needs to begin, on an idle machine.
const A_MOMENT: Duration = Duration::from_millis(300);
