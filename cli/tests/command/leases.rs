//! Tests of how long a lock is held: at least, at most, and through outages.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::stage::{Ran, Running, Stage, TRIES, wait_until};

const US: &str = env!("CARGO_BIN_EXE_distlock");

on_every_store! {
    a_quick_command_keeps_its_lock_for_at_least_that_long,
    a_slow_command_is_not_made_slower,
    a_run_that_keeps_its_lock_after_the_command_can_be_terminated,
    a_lost_lock_is_not_kept,
    a_lock_lost_during_the_command_exits_with_76_though_it_was_to_be_kept,
    one_of_several_locks_lost_during_the_command_exits_with_76_though_all_were_to_be_kept,
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
    // A run that added its minimum to the time of the command would end two seconds after the command every time.
    let minimum = Duration::from_secs(2);
    let lingers = || {
        let words = ["run", "--at-least", "2s", "x", "--"];
        let command = ["sh", "-c", "sleep 2; echo done"];
        let mut run = stage.start(&[&words[..], &command].concat());
        run.says("done");
        let said = Instant::now();
        assert_eq!(run.end().code, 0);
        said.elapsed()
    };
    assert!(
        (0..TRIES).any(|_| lingers() < minimum),
        "it lingered {TRIES} times"
    );
}

fn a_run_that_keeps_its_lock_after_the_command_can_be_terminated(stage: &Stage) {
    let run = lingering(stage, "30s");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code, 6);
    assert!(!stage.is_held("x"));
}

/// Starts a run that keeps `x`, with this lease, though its command has ended with 6: no process but distlock itself is left to receive a
/// signal.
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

fn a_lost_lock_is_not_kept(stage: &Stage) {
    // A run that sends its request only after the release, on a busy machine, cannot know that it was later.
    let again = (1..TRIES).map(|_| loses_what_it_keeps(stage));
    let in_time = again.into_iter().find(|ended| ended.code != 76);
    let ended = in_time.unwrap_or_else(|| loses_what_it_keeps(stage));
    assert_eq!((ended.code, &*ended.err), (6, ""), "it had ended before");
}

fn loses_what_it_keeps(stage: &Stage) -> Ran {
    let run = lingering(stage, "5s");
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    run.end()
}

fn a_lock_lost_during_the_command_exits_with_76_though_it_was_to_be_kept(stage: &Stage) {
    for kind in [
        "--wait=1m",
        "--fair",
        "--fenced",
        "--simple",
        "--read",
        "--permits=2",
    ] {
        let name = kind.trim_start_matches('-');
        loses_while_the_command_runs(stage, &[kind, name], name);
    }
}

fn one_of_several_locks_lost_during_the_command_exits_with_76_though_all_were_to_be_kept(
    stage: &Stage,
) {
    loses_while_the_command_runs(stage, &["a", "b", "c"], "b");
}

/// Checks a run whose command ends well, and which keeps these locks for so long that its next renewal notices the loss; `lost` is released
/// before the command ends.
fn loses_while_the_command_runs(stage: &Stage, words: &[&str], lost: &str) {
    let release = format!("{US} release --force {lost} > /dev/null");
    let options = ["run", "--lease", "5s", "--at-least", "1h"];
    let words = [&options[..], words, &["--", "sh", "-c", &release]].concat();
    let ended = stage.run(&words);
    assert_eq!(ended.code, 76, "{words:?}: {ended:?}");
    let message = format!("`{lost}` was lost");
    assert!(ended.err.contains(&message), "{words:?}: {ended:?}");
}

#[test]
fn a_lock_at_risk_during_the_command_exits_with_76_if_it_was_lost() {
    let stage = Stage::redis();
    let run = ends_while_the_server_stands_still(&stage);
    stage.server().continue_process();
    stage.server().cmd(&["DEL", "x"]);
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains("`x` was lost"), "{ended:?}");
}

#[test]
fn a_lock_at_risk_during_the_command_that_is_still_held_was_held_throughout() {
    let stage = Stage::redis();
    let run = ends_while_the_server_stands_still(&stage);
    stage.server().continue_process();
    assert!(stage.is_held("x"));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code, 6);
}

/// Starts a run that has said that it does not know whether `x` was held until its command ended, with 6.
fn ends_while_the_server_stands_still(stage: &Stage) -> Running {
    let words = ["run", "--lease", "15s", "--at-least", "1h", "x", "--"];
    let script = ["sh", "-c", "echo held; read line; exit 6"];
    let mut command = stage.command(&[&words[..], &script].concat());
    let (input, end) = std::io::pipe().expect("pipes can be made");
    command.stdin(input);
    let mut run = Running::start(command);
    run.says("held");
    stage.server().stop_process();
    drop(end);
    let message = run.err_line();
    let doubt = "it is not known whether the lock was held until the command ended";
    assert!(message.contains(doubt), "{message}");
    run
}

fn a_lease_is_renewed_while_the_command_runs(stage: &Stage) {
    let ran = stage.run(&["run", "--lease", "5s", "x", "--", "sleep", "8"]);
    assert_eq!((ran.code, &*ran.err), (0, ""));
}
