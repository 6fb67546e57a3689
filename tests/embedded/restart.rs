//! The machine restarts, or seems to: another machine, another time namespace.

use std::process::Command;

use distlock::blocking::Client;
use distlock::{Lease, ReleaseOn};

use super::support::process::Process;
use super::worker::{ENTER, LEAVE, LONG};
use super::{StoreFile, patient};

#[test]
fn no_lock_survives_a_restart_of_the_machine() {
    let place = StoreFile::new();
    let client = place.connect();
    client.lock("a").acquire().expect("it is free").forget();
    // The file is as a machine that was switched off leaves it.
    drop(client);
    assert_eq!(place.rows("states"), 1, "it was left locked");
    started_before(&place.database());
    let client = place.connect_after_the_others();
    let guard = client.lock("a").try_acquire().expect("it answers");
    assert!(guard.is_some(), "that was before");
}

#[test]
fn a_file_that_another_machine_uses_is_refused() {
    let place = StoreFile::new();
    let here = place.connect();
    let guard = here.lock("a").acquire().expect("it is free");
    // For a client that connects now, the connected one belongs to another boot.
    started_before(&place.database());
    let error = distlock::blocking::Client::connect(&place.url()).expect_err("two machines");
    assert!(error.to_string().contains("another machine"), "{error}");
    assert!(guard.is_held());
}

/// `distlock acquire` does the same.
#[test]
fn a_forgotten_lease_ends_with_a_restart_of_the_machine() {
    let place = StoreFile::new();
    let mut worker = Process::start(LEAVE, &place.url());
    worker.expect_line("left");
    worker.ended_well();
    let client = place.connect();
    let early = client.lock("a").try_acquire().expect("it answers");
    assert!(early.is_none(), "the same boot: the lease counts");
    client.close().expect("it answers");
    started_before(&place.database());
    let client = place.connect_after_the_others();
    let guard = client.lock("a").try_acquire().expect("it answers");
    assert!(guard.is_some(), "no client of the boot before is alive");
}

#[test]
fn a_file_is_not_emptied_while_a_client_with_holds_left_to_their_lease_is_alive() {
    let place = StoreFile::new();
    let builder = patient(&place.url()).release_on(ReleaseOn::Lease);
    let builder = builder.default_lease(Lease::KeepAlive(LONG));
    let alive = Client::connect_with(builder).expect("the file can be used");
    let guard = alive.lock("a").acquire().expect("it is free");
    // A client that connects removes what is left of clients without a label.
    place.connect().close().expect("it answers");
    started_before(&place.database());
    let error = Client::connect(&place.url()).expect_err("a client of another boot is alive");
    assert!(error.to_string().contains("another machine"), "{error}");
    assert_eq!(place.rows("states"), 1, "it is still held");
    assert!(guard.is_held());
}

/// The same happens when the process may open no more files.
#[test]
fn a_file_is_not_emptied_if_the_liveness_of_a_client_is_unknown() {
    let place = StoreFile::new();
    let client = place.connect();
    let _guard = client.lock("a").acquire().expect("it is free");
    // No user can open its file, not even root: it is a link to itself.
    let [presence] = &*place.left() else {
        panic!("{:?}", place.left())
    };
    let presence = place.folder.path().join("locks.db-clients").join(presence);
    std::fs::rename(&presence, presence.with_extension("away")).expect("it is ours");
    std::os::unix::fs::symlink(&presence, &presence).expect("there is room");
    started_before(&place.database());
    let error = Client::connect(&place.url()).expect_err("it cannot be known");
    assert!(
        error.to_string().contains("it is unknown whether"),
        "{error}"
    );
    assert_eq!(place.rows("states"), 1, "it is still held");
}

#[test]
fn a_file_of_another_time_namespace_is_refused() {
    let place = StoreFile::new();
    let client = place.connect();
    let lock = client.lock("a").with_lease(Lease::Fixed(LONG));
    lock.acquire().expect("it is free").forget();
    client.close().expect("it answers");
    // As a process with another clock would have written it.
    let changed = place
        .database()
        .execute("UPDATE machine SET clock = 'boottime 100000 0'", []);
    assert_eq!(changed.expect("it works"), 1);
    let error = Client::connect(&place.url()).expect_err("its clocks cannot be compared");
    refused_for_its_clock(&error.to_string());
}

/// Uses a real time namespace, where that is permitted. Elsewhere only the test above covers this.
#[test]
fn a_process_in_another_time_namespace_is_refused() {
    let place = StoreFile::new();
    let mut worker = Process::start(LEAVE, &place.url());
    worker.expect_line("left");
    worker.ended_well();
    let permitted = Command::new("unshare").args(UNSHARE).arg("true").output();
    if !permitted.is_ok_and(|tried| tried.status.success()) {
        eprintln!("no time namespace may be made here: by the file's clock only");
        return a_file_of_another_time_namespace_is_refused();
    }
    let mut worker = Process::start_by("unshare", &UNSHARE, ENTER, &place.url());
    refused_for_its_clock(&worker.expect_line("refused"));
    worker.ended_well();
    assert_eq!(place.rows("states"), 1, "it is still held");
    // A namespace of its own with the same clock does not count as another one.
    let mut worker = Process::start_by("unshare", &["--time", "--fork"], ENTER, &place.url());
    worker.expect_line("entered");
    worker.ended_well();
}

fn refused_for_its_clock(said: &str) {
    assert!(said.contains("time namespace"), "{said}");
    assert!(said.contains("boottime 100000 0"), "{said}");
}

const UNSHARE: [&str; 4] = ["--time", "--boottime", "100000", "--fork"];

/// Makes the file look as if the machine had been restarted since.
pub(crate) fn started_before(database: &rusqlite::Connection) {
    let changed = database.execute("UPDATE machine SET boot = 'before'", []);
    assert_eq!(changed.expect("it works"), 1);
}
