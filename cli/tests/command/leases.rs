//! How long a lock is held: at least, at most, and through outages.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::stage::{Running, Stage, wait_until};

on_every_store! {
    a_quick_command_keeps_its_lock_for_at_least_that_long,
    a_slow_command_is_not_made_slower,
    who_keeps_a_lock_after_its_command_can_be_ended,
    a_lock_that_has_gone_is_not_kept,
    a_lease_is_renewed_while_the_command_runs,
}

fn a_quick_command_keeps_its_lock_for_at_least_that_long(stage: &Stage) {
    let begun = Instant::now();
    let mut run = stage.start(&[
        "run",
        "--at-least",
        "6s",
        "x",
        "--",
        "sh",
        "-c",
        "echo done; exit 6",
    ]);
    run.says("done");
    assert!(stage.is_held("x"));
    assert_eq!(run.end().code, 6);
    assert!(begun.elapsed() >= Duration::from_secs(6));
    assert!(!stage.is_held("x"));
}

fn a_slow_command_is_not_made_slower(stage: &Stage) {
    let begun = Instant::now();
    let ran = stage.run(&["run", "--at-least", "10ms", "x", "--", "sleep", "0.1"]);
    assert_eq!(ran.code, 0);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

fn who_keeps_a_lock_after_its_command_can_be_ended(stage: &Stage) {
    let run = lingering(stage, "30s");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code, 6);
    assert!(!stage.is_held("x"));
}

/// One that keeps `x`, with this lease, though its command has ended with 6: nothing but us is there to be asked.
fn lingering(stage: &Stage, lease: &str) -> Running {
    let words = ["run", "--lease", lease, "--at-least", "1h", "x", "--"];
    let command = ["sh", "-c", "echo done; exit 6"];
    let mut run = stage.start(&[&words[..], &command].concat());
    run.says("done");
    wait_until("we keep the lock for nobody", || {
        let below = format!("/proc/{0}/task/{0}/children", run.pid());
        std::fs::read_to_string(below).is_ok_and(|children| children.is_empty())
    });
    run
}

fn a_lock_that_has_gone_is_not_kept(stage: &Stage) {
    let run = lingering(stage, "5s");
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    let ended = run.end();
    assert_eq!((ended.code, &*ended.err), (6, ""), "it had ended before");
}

fn a_lease_is_renewed_while_the_command_runs(stage: &Stage) {
    let ran = stage.run(&["run", "--lease", "5s", "x", "--", "sleep", "8"]);
    assert_eq!((ran.code, &*ran.err), (0, ""));
}

#[test]
fn a_short_outage_costs_nothing() {
    let stage = Stage::redis();
    let mut run = stage.start(&[
        "run",
        "--lease",
        "6s",
        "x",
        "--",
        "sh",
        "-c",
        "echo held; sleep 3",
    ]);
    run.says("held");
    stage.server().stop_process();
    std::thread::sleep(Duration::from_millis(1500));
    stage.server().continue_process();
    let ended = run.end();
    assert_eq!((ended.code, &*ended.err), (0, ""));
}
