//! Tests of `kill -9` on distlock, with a server that sees nothing of it: the command does not go on without its lock.

use nix::sys::signal::Signal;

use crate::stage::{Stage, is_alive, wait_until};

on_store! {
    redis:
    the_command_ends_when_distlock_is_killed,
    the_next_waiter_gets_the_lock,
}

fn the_command_ends_when_distlock_is_killed(stage: &Stage) {
    let script = "trap '' TERM HUP; echo $$; while :; do sleep 0.01; done";
    let mut run = stage.start(&["run", "x", "--", "sh", "-c", script]);
    let command = run.line();
    assert!(is_alive(&command));
    run.signal(Signal::SIGKILL);
    wait_until("the command is gone", || !is_alive(&command));
}

fn the_next_waiter_gets_the_lock(stage: &Stage) {
    let holder = stage.hold_with(&["--lease", "5s", "x"]);
    let mut waiter = stage.start(&["run", "x", "--", "echo", "mine"]);
    stage.is_awaited();
    assert!(waiter.is_running());
    holder.signal(Signal::SIGKILL);
    waiter.says("mine");
    assert_eq!(waiter.end().code, 0);
}
