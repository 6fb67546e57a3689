//! Holders that end without releasing.

use std::fs::File;
use std::time::{Duration, Instant, SystemTime};

use distlock::ReleaseOn;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::process::Process;
use super::worker::{FORK, HOLD, LEAVE, PARENT, RUN, SHORT};
use super::{PATIENCE, StoreFile, once_within, wait_until};

#[test]
fn the_locks_of_a_killed_process_are_free_at_once() {
    let place = StoreFile::new();
    let client = place.connect();
    // The lease is ten minutes, and a waiter that is not notified polls every two seconds.
    once_within(Duration::from_secs(1), "it is free", || {
        let mut holder = Process::start(HOLD, &place.url());
        holder.expect_line("held");
        let waiter = {
            let lock = client.lock("a");
            std::thread::spawn(move || (lock.acquire(), Instant::now()))
        };
        assert!(
            client
                .lock("a")
                .try_acquire()
                .expect("it answers")
                .is_none()
        );
        std::thread::sleep(Duration::from_millis(150));
        let killed = Instant::now();
        holder.kill();
        let (guard, got) = waiter.join().expect("it does not panic");
        guard.expect("it is free").release().expect("it is ours");
        got.duration_since(killed)
    });
}

#[test]
fn a_running_child_keeps_the_locks_of_its_killed_parent() {
    let place = StoreFile::new();
    let client = place.connect();
    let (mut holder, child) = with_child(&place, RUN);
    holder.kill();
    // Longer than its lease, which is not renewed.
    let lock = client.lock("a");
    let early = lock.acquire_timeout(SHORT * 2).expect("it answers");
    assert!(early.is_none(), "its child is still at it");
    let killed = Instant::now();
    kill(child, Signal::SIGKILL).expect("it is there");
    let guard = lock.acquire_timeout(PATIENCE).expect("it answers");
    guard
        .expect("nobody is at it")
        .release()
        .expect("it is ours");
    eprintln!("free {:?} after the child", killed.elapsed());
}

/// Its label is not renewed, either; the listing must show whose child it is.
#[test]
fn the_locks_that_a_child_keeps_stay_labelled() {
    let place = StoreFile::new();
    let client = place.connect();
    let (mut holder, child) = with_child(&place, RUN);
    let label = || {
        let seen = client.admin().inspect("a").expect("it answers");
        seen.expect("its child is still at it").holders[0]
            .label
            .clone()
    };
    wait_until("it has said what it is", || label().is_some());
    holder.kill();
    let database = place.database();
    let old = database.execute("UPDATE clients SET label_until = 1", []);
    old.expect("it is there");
    assert_eq!(label().as_deref(), Some("the worker"));
    kill(child, Signal::SIGKILL).expect("it is there");
}

#[test]
fn an_unrelated_child_keeps_nothing() {
    let place = StoreFile::new();
    let client = place.connect();
    let (mut holder, child) = with_child(&place, PARENT);
    holder.kill();
    let guard = client.lock("a").acquire_timeout(PATIENCE);
    let freed = guard.expect("it answers").is_some();
    kill(child, Signal::SIGKILL).expect("it is there");
    assert!(freed, "the child knows nothing of the lock");
}

#[test]
fn a_stopped_process_with_children_still_holds_when_it_continues() {
    let place = StoreFile::new();
    let client = place.connect();
    let (mut holder, child) = with_child(&place, RUN);
    place.stop(&holder);
    let lock = client.lock("a");
    let early = lock.acquire_timeout(SHORT * 2).expect("it answers");
    assert!(early.is_none(), "whoever does the work is still there");
    holder.resume();
    holder.send_line("state");
    assert_eq!(holder.expect_line(""), "valid");
    kill(child, Signal::SIGKILL).expect("it is there");
    holder.send_line("release");
    holder.expect_line("released");
    holder.ended_well();
    assert!(lock.try_acquire().expect("it answers").is_some());
}

#[test]
fn a_hold_left_to_its_lease_outlives_its_process() {
    let place = StoreFile::new();
    let client = place.connect();
    let mut gone = Process::start(LEAVE, &place.url());
    gone.expect_line("left");
    gone.ended_well();
    let lock = client.lock("a");
    assert!(
        lock.try_acquire().expect("it answers").is_none(),
        "its lease goes on"
    );
    let guard = lock.acquire_timeout(PATIENCE).expect("it answers");
    assert!(guard.is_some(), "and ends");
}

#[test]
fn a_forgotten_lock_ends_with_its_process() {
    let place = StoreFile::new();
    let client = place.connect();
    let other = place.connect();
    other.lock("a").acquire().expect("it is free").forget();
    assert!(
        client
            .lock("a")
            .try_acquire()
            .expect("it answers")
            .is_none()
    );
    other.close().expect("it answers");
    drop(other);
    let guard = client.lock("a").acquire_timeout(PATIENCE);
    assert!(guard.expect("it answers").is_some());
}

#[test]
fn no_process_leaves_files_behind() {
    let place = StoreFile::new();
    let mut killed = Vec::new();
    for _ in 0..3 {
        killed.push(Process::start(HOLD, &place.url()));
    }
    for holder in &mut killed {
        holder.kill();
    }
    drop(killed);
    let client = place.connect();
    client
        .lock("a")
        .acquire()
        .expect("it is free")
        .release()
        .expect("it is ours");
    client.close().expect("it answers");
    wait_until("all is tidy", || {
        // The next client to connect cleans up after killed ones.
        place.connect().close().expect("it answers");
        place.left().is_empty()
    });
    for table in ["states", "clients", "listeners", "journal"] {
        assert_eq!(place.rows(table), 0, "{table}");
    }
}

/// SQLite's record of its process's locks is wrong in a forked child, which has the parent's files, too.
#[test]
fn a_forked_child_may_neither_use_its_parents_locks_nor_open_the_file() {
    let place = StoreFile::new();
    let client = place.connect();
    let mut holder = Process::start(FORK, &place.url());
    holder.expect_line("held");
    holder.send_line("fork");
    assert_eq!(holder.expect_line("release"), "closed");
    assert!(
        holder
            .expect_line("connect")
            .contains("was forked from one")
    );
    holder.ended_well();
    // The child has not renewed it.
    let guard = client.lock("a").acquire_timeout(PATIENCE);
    assert!(guard.expect("it answers").is_some());
}

/// A client that was killed before it was registered, or whose rows a restart has removed, is known by its files alone.
#[test]
fn files_of_unknown_clients_are_removed() {
    let place = StoreFile::new();
    place.connect().close().expect("it answers");
    let folder = place.folder.path().join("locks.db-clients");
    let old = SystemTime::now() - Duration::from_secs(3600);
    let [left, there, young] = [1, 2, 3].map(|n| format!("71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c1{n}"));
    for name in [&left, &format!("{left}.bell"), &young] {
        let file = File::create(folder.join(name)).expect("there is room");
        if *name != young {
            file.set_modified(old).expect("it is ours");
        }
    }
    // And a file that is old and whose client is alive.
    let locked = File::create(folder.join(&there)).expect("there is room");
    locked.set_modified(old).expect("it is ours");
    locked.lock().expect("nobody has it");
    place.connect().close().expect("it answers");
    assert_eq!(place.left(), [there, young]);
}

/// Another program has used the name of the folder before.
#[test]
fn files_of_other_programs_in_the_client_directory_stay() {
    let place = StoreFile::new();
    let folder = place.folder.path().join("locks.db-clients");
    std::fs::create_dir(&folder).expect("there is room");
    let old = SystemTime::now() - Duration::from_secs(3600);
    for name in ["miller.txt", "miller.bell", ".made"] {
        let file = folder.join(name);
        std::fs::write(&file, "theirs").expect("there is room");
        let file = File::options().write(true).open(file).expect("it is there");
        file.set_modified(old).expect("it is ours");
    }
    for _ in 0..2 {
        place.connect().close().expect("it answers");
    }
    for name in ["miller.txt", "miller.bell", ".made"] {
        let text = std::fs::read_to_string(folder.join(name));
        assert_eq!(text.expect("it is there"), "theirs", "{name}");
    }
}

#[test]
fn an_unsupported_release_condition_changes_nothing() {
    let builder = distlock::Client::builder("memory:").release_on(ReleaseOn::Children);
    let client = distlock::blocking::Client::connect_with(builder).expect("memory is always there");
    let guard = client.lock("a").acquire().expect("it is free");
    assert!(
        guard.remaining() < Duration::from_secs(31),
        "its lease is as always"
    );
}

/// Starts a holder of `a` and its child.
fn with_child(place: &StoreFile, role: &str) -> (Process, Pid) {
    let holder = Process::start(role, &place.url());
    let child = holder.expect_line("child").parse().expect("a number");
    holder.expect_line("held");
    (holder, Pid::from_raw(child))
}
