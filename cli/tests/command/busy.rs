//! Tests of a lock that another client holds.

use nix::sys::signal::Signal;

use crate::stage::{Stage, is_alive};

on_every_store! {
    busy_exits_with_75_and_names_the_holder,
    the_busy_exit_code_is_configurable,
    a_skipped_run_prints_nothing,
    a_wait_ends_when_the_holder_does,
    a_free_lock_is_acquired_without_waiting,
}

// The wait is long enough for one reply on a busy machine: a client without a reply by then cannot say that the lock is held.
fn busy_exits_with_75_and_names_the_holder(stage: &Stage) {
    let _holder = stage.hold("x");
    for words in [
        &["run", "--wait", "0", "x", "--", "echo", "never"][..],
        &["run", "--wait", "2s", "x", "--", "echo", "never"],
        &["acquire", "--lease", "1m", "--wait", "0", "x"],
    ] {
        let ran = stage.run(words);
        assert_eq!((ran.code, &*ran.out), (75, ""), "{ran:?}");
        assert!(ran.err.starts_with("distlock: `x` is held by "), "{ran:?}");
        assert!(ran.err.contains("sleep 1000"), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
}

fn the_busy_exit_code_is_configurable(stage: &Stage) {
    let _holder = stage.hold("x");
    let ran = stage.run(&["run", "--wait", "0", "--busy-code", "7", "x", "--", "true"]);
    assert_eq!(ran.code, 7);
}

fn a_skipped_run_prints_nothing(stage: &Stage) {
    let _holder = stage.hold("x");
    let ran = stage.run(&[
        "run",
        "--wait",
        "0",
        "--busy-code",
        "0",
        "x",
        "--",
        "echo",
        "never",
    ]);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "", ""));
}

fn a_wait_ends_when_the_holder_does(stage: &Stage) {
    let mut holder = stage.start(&["run", "x", "--", "sh", "-c", "echo $$; exec sleep 1000"]);
    let pid = holder.line();
    let mut waiter = stage.start(&["run", "x", "--", "echo", "mine"]);
    stage.is_awaited();
    assert!(waiter.is_running());
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.end().code, 143);
    assert!(!is_alive(&pid));
    waiter.says("mine");
    assert_eq!(waiter.end().code, 0);
}

fn a_free_lock_is_acquired_without_waiting(stage: &Stage) {
    let ran = stage.run(&["run", "--wait", "0", "x", "--", "echo", "mine"]);
    assert_eq!((ran.code, &*ran.out), (0, "mine\n"));
}
