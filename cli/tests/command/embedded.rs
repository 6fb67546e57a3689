//! The store of those who name none: a file of the user's own.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::stage::{Stage, distlock, ran};

/// A tenth of the lease: who has the lock by then did not wait for it to end.
const SOON: Duration = Duration::from_secs(3);

#[test]
fn a_lock_needs_no_server() {
    let stage = Stage::sqlite();
    let ran = ran(at_home(&stage, &["run", "demo", "--", "echo", "one at a time"]));
    assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "one at a time\n", ""));
    let file = stage.file(".local/state/distlock/locks.db");
    assert!(std::path::Path::new(&file).exists());
}

#[test]
fn runs_of_one_user_exclude_each_other() {
    let stage = Stage::sqlite();
    let us = env!("CARGO_BIN_EXE_distlock");
    let script = format!("DISTLOCK_HELD= {us} run --wait 0 x -- true; exit $?");
    let ran = ran(at_home(&stage, &["run", "x", "--", "sh", "-c", &script]));
    assert_eq!(ran.code, 75, "{ran:?}");
}

#[test]
fn a_machine_without_home_has_locks_too() {
    let mut command = distlock(&["run", "without-home", "--", "echo", "one"]);
    command.env_remove("HOME").env_remove("XDG_STATE_HOME");
    let ran = ran(command);
    assert_eq!((ran.code, &*ran.out), (0, "one\n"), "{ran:?}");
}

#[test]
fn a_folder_that_cannot_be_written_is_69_with_the_way_out() {
    let mut command = distlock(&["run", "x", "--", "echo", "never"]);
    // Nobody writes there, not even root.
    command.env("HOME", "/proc/self").env_remove("XDG_STATE_HOME");
    let ran = ran(command);
    assert_eq!((ran.code, &*ran.out), (69, ""), "{ran:?}");
    assert!(ran.err.contains("/proc/self"), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

#[test]
fn the_next_waiter_need_not_wait_for_a_dead_holders_lease() {
    let stage = Stage::sqlite();
    let holder = stage.hold("x");
    let mut waiter = stage.start(&["run", "x", "--", "echo", "mine"]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(waiter.is_running());
    let killed = Instant::now();
    holder.signal(Signal::SIGKILL);
    waiter.says("mine");
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    assert_eq!(waiter.end().code, 0);
}

/// `distlock` of a user whose home is the stage's folder.
fn at_home(stage: &Stage, words: &[&str]) -> Command {
    let mut command = distlock(words);
    command.env("HOME", stage.file("")).env_remove("XDG_STATE_HOME");
    command
}
