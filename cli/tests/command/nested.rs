//! Tests of a run inside another.

use nix::sys::signal::Signal;

use crate::stage::{Ran, Stage, ran};

on_every_store! {
    a_nested_run_of_the_same_name_runs_under_the_outer_hold,
    a_nested_run_finds_the_outer_hold_through_other_locks_and_many_levels,
    the_innermost_exit_code_is_passed_on,
    an_ended_hold_is_not_inherited,
    a_lost_outer_hold_ends_the_inner_command,
    an_invalid_environment_variable_is_no_hold,
    a_signal_reaches_the_innermost_command_once,
}

const US: &str = env!("CARGO_BIN_EXE_distlock");

fn a_nested_run_of_the_same_name_runs_under_the_outer_hold(stage: &Stage) {
    let owner = "echo $DISTLOCK_NAME $DISTLOCK_OWNER";
    let script = format!("{owner}; exec {US} run --wait 0 x -- sh -c '{owner}'");
    let ran = stage.run(&["run", "x", "--", "sh", "-c", &script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let words: Vec<_> = ran.out.split_whitespace().collect();
    assert_eq!(words.len(), 4, "{ran:?}");
    assert_eq!(words[..2], words[2..], "the same name and the same owner");
    assert!(!stage.is_held("x"));
}

fn a_nested_run_finds_the_outer_hold_through_other_locks_and_many_levels(stage: &Stage) {
    let ran = stage.run(&[
        "run",
        "a",
        "--",
        US,
        "run",
        "b",
        "--",
        US,
        "run",
        "--wait",
        "0",
        "a",
        "--",
        US,
        "run",
        "c",
        "--",
        US,
        "run",
        "--wait",
        "0",
        "b",
        "--",
        "sh",
        "-c",
        "echo $DISTLOCK_NAME",
    ]);
    assert_eq!((ran.code, &*ran.out), (0, "b\n"), "{ran:?}");
    for name in ["a", "b", "c"] {
        assert!(!stage.is_held(name));
    }
}

fn the_innermost_exit_code_is_passed_on(stage: &Stage) {
    let ran = stage.run(&["run", "x", "--", US, "run", "x", "--", "sh", "-c", "exit 9"]);
    assert_eq!(ran.code, 9);
    let ran = stage.run(&["run", "x", "--", US, "run", "x", "--", "no-such-command"]);
    assert_eq!(ran.code, 127);
}

fn an_ended_hold_is_not_inherited(stage: &Stage) {
    let ran = stage.run(&["run", "x", "--", "sh", "-c", "echo \"$DISTLOCK_HELD\""]);
    let left_over = ran.out.trim();
    assert!(left_over.contains("\"x\""), "{left_over}");
    let owner = "echo $DISTLOCK_OWNER";
    let again = run_inside(stage, left_over, owner);
    assert_eq!(again.code, 0);
    assert!(
        !left_over.contains(again.out.trim()),
        "it took the lock itself"
    );
    // Another client holds it now: the variable is no proof of a hold.
    let _holder = stage.hold("x");
    assert_eq!(run_inside(stage, left_over, "echo never").code, 75);
}

fn a_lost_outer_hold_ends_the_inner_command(stage: &Stage) {
    let script = format!("exec {US} run x -- sh -c 'echo ready; exec sleep 1000'");
    let words = ["run", "--lease", "5s", "x", "--", "sh", "-c", &script];
    let mut run = stage.start(&words);
    run.says("ready");
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    assert_eq!(run.end().code, 76);
}

fn a_signal_reaches_the_innermost_command_once(stage: &Stage) {
    // The script waits a while after the first TERM, so that a second would have come.
    let counts = "n=0; trap 'n=$((n+1))' TERM; echo ready; \
                  while [ $n = 0 ]; do sleep 0.05; done; sleep 0.3; echo $n times; exit 5";
    for inner in ["x", "y"] {
        let words = ["run", "x", "--", US, "run", inner, "--", "sh", "-c", counts];
        let mut run = stage.start(&words);
        run.says("ready");
        run.signal(Signal::SIGTERM);
        run.says("1 times");
        assert_eq!(run.end().code, 5, "inside: {inner}");
        assert!(!stage.is_held("x") && !stage.is_held(inner));
    }
}

fn an_invalid_environment_variable_is_no_hold(stage: &Stage) {
    for nonsense in ["", "x", "[{}]", "[{\"name\":\"x\",\"owner\":\"me\"}]"] {
        let ran = run_inside(stage, nonsense, "echo mine");
        assert_eq!((ran.code, &*ran.out), (0, "mine\n"), "{nonsense}");
    }
}

/// Runs `x` with an environment that names these holds around it.
fn run_inside(stage: &Stage, held: &str, script: &str) -> Ran {
    let mut command = stage.command(&["run", "--wait", "0", "x", "--", "sh", "-c", script]);
    command.env("DISTLOCK_HELD", held);
    ran(command)
}
