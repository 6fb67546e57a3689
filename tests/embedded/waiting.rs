//! How waiters learn of a release, and the cost of waiting.

use std::time::{Duration, Instant};

use distlock::ReleaseOn;
use distlock::blocking::Client;

use super::support::process::{Process, wall_clock};
use super::worker::{MANY, NAMES, WAIT};
use super::{StoreFile, once_within, wait_until};

#[test]
fn another_process_is_notified_of_a_release_within_20_ms() {
    let place = StoreFile::new();
    let client = place.connect();
    let mut waiter = Process::start(WAIT, &place.url());
    once_within(Duration::from_millis(20), "it is notified", || {
        told_after(&place, &client, &mut waiter)
    });
}

fn told_after(place: &StoreFile, client: &Client, waiter: &mut Process) -> Duration {
    let guard = client.lock("a").acquire().expect("it is free");
    waiter.send_line("wait");
    waiter.expect_line("waiting");
    wait_until("it listens", || place.rows("listeners") == 1);
    // The waiter polls once more after that.
    std::thread::sleep(Duration::from_millis(30));
    let released = wall_clock();
    guard.release().expect("it is ours");
    let got: u128 = waiter.expect_line("got").parse().expect("a number");
    let took = u64::try_from(got.saturating_sub(released)).expect("it is short");
    // Its next wait must be seen in the list.
    wait_until("nobody listens", || place.rows("listeners") == 0);
    Duration::from_nanos(took)
}

/// A socket buffers ten messages. A process that was stopped finds it full, and must not miss the messages that did not fit.
#[test]
fn messages_beyond_the_socket_buffer_are_not_missed() {
    // A waiter that is not notified polls every two seconds.
    once_within(Duration::from_secs(1), "all are notified", wake_from_a_stop);
}

fn wake_from_a_stop() -> Duration {
    let place = StoreFile::new();
    let holder = place.connect();
    let hold = |number| holder.lock(format!("lock {number}")).acquire();
    let guards: Vec<_> = (0..NAMES)
        .map(|number| hold(number).expect("it is free"))
        .collect();
    let waiter = Process::start(MANY, &place.url());
    wait_until("all of them listen", || place.rows("listeners") == NAMES);
    // They poll once more after that, and then sleep for two seconds.
    std::thread::sleep(Duration::from_millis(100));
    let asleep = Instant::now();
    place.stop(&waiter);
    for guard in guards {
        guard.release().expect("it is ours");
    }
    let stopped = asleep.elapsed();
    waiter.resume();
    let resumed = Instant::now();
    waiter.expect_line("all");
    // After that long they would poll by themselves.
    match stopped < Duration::from_secs(1) {
        true => resumed.elapsed(),
        false => Duration::MAX,
    }
}

/// A client that leaves its locks to their leases is present like others, and its wake socket is not cleaned up.
#[test]
fn a_waiter_with_holds_left_to_their_lease_keeps_its_wake_socket() {
    let place = StoreFile::new();
    let waiter =
        Client::connect_with(distlock::Client::builder(&place.url()).release_on(ReleaseOn::Lease));
    let waiter = waiter.expect("the file can be used");
    let guard = place.connect().lock("a").acquire().expect("it is free");
    let lock = waiter.lock("a");
    let waiting = std::thread::spawn(move || lock.acquire());
    wait_until("it listens", || place.rows("listeners") == 1);
    let folder = place.folder.path().join("locks.db-clients");
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    for name in place.left().iter().filter(|name| !name.ends_with(".bell")) {
        let file = std::fs::File::options().write(true).open(folder.join(name));
        file.and_then(|file| file.set_modified(old))
            .expect("it is ours");
    }
    for _ in 0..5 {
        place.connect().close().expect("it answers");
    }
    let bells = place.left();
    assert!(
        bells.iter().any(|name| name.ends_with(".bell")),
        "{bells:?}"
    );
    guard.release().expect("it is ours");
    let got = waiting.join().expect("it does not panic");
    got.expect("it is free").release().expect("it is ours");
}

/// The client makes its wake socket again after it was removed.
#[test]
fn a_removed_wake_socket_is_created_again() {
    let place = StoreFile::new();
    let (holder, waiter) = (place.connect(), place.connect());
    let mut round = 0;
    once_within(Duration::from_secs(1), "it is notified", || {
        for bell in place.left().iter().filter(|name| name.ends_with(".bell")) {
            let folder = place.folder.path().join("locks.db-clients");
            std::fs::remove_file(folder.join(bell)).expect("it is there");
        }
        round += 1;
        let name = format!("lock {round}");
        let guard = holder.lock(&*name).acquire().expect("it is free");
        let lock = waiter.lock(&*name);
        let waiting = std::thread::spawn(move || (lock.acquire(), Instant::now()));
        std::thread::sleep(Duration::from_millis(100));
        let released = Instant::now();
        guard.release().expect("it is ours");
        let (got, at) = waiting.join().expect("it does not panic");
        got.expect("it is free").release().expect("it is ours");
        at.duration_since(released)
    });
}
