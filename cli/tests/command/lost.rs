//! The lock is lost while the command runs: everything it started is ended.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::stage::{Running, Stage, is_alive, pid_of, state, wait_until};

/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(8);

/// As it is given below.
const GRACE: Duration = Duration::from_secs(4);

on_every_store! {
    a_lock_taken_by_force_ends_the_command_with_76,
    a_command_that_ignores_term_is_killed_after_the_grace,
    what_ran_away_from_its_group_is_ended_too,
    a_hold_that_lasted_too_long_ends_the_command,
    a_fixed_lease_that_runs_out_ends_the_command,
    a_command_may_use_its_grace_to_put_things_right,
    a_quick_command_whose_lock_went_first_is_76_too,
    a_stopped_command_is_ended_too,
    a_run_that_was_stopped_until_its_lock_had_gone_wakes_its_command_only_to_end_it,
}

/// Three generations, each of which says its pid, the last in a session of its own.
const TREE: &str = "echo $$; sh -c 'echo $$; sleep 1000 & echo $!; wait' & \
                    setsid sh -c 'echo $$; exec sleep 1000' & wait";

fn a_lock_taken_by_force_ends_the_command_with_76(stage: &Stage) {
    let (run, tree) = tree(stage, &["--lease", "5s", "x"], TREE);
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    ends_with_76(run, &tree, "`x` was lost");
}

fn a_command_that_ignores_term_is_killed_after_the_grace(stage: &Stage) {
    // The first says that it was asked; the others do not listen at all.
    let deaf = "trap \"\" TERM; echo $$; while :; do sleep 1; done";
    let stubborn = format!(
        "trap 'echo asked' TERM; echo $$; sh -c '{deaf}' & setsid sh -c '{deaf}' & echo $$; \
         while :; do sleep 0.1; done"
    );
    let words = ["--lease", "5s", "--grace", "4s", "x"];
    let (mut run, tree) = tree(stage, &words, &stubborn);
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    run.says("asked");
    let asked = Instant::now();
    ends_with_76(run, &tree, "`x` was lost");
    let took = asked.elapsed();
    // What it said was heard a little later.
    assert!(took > GRACE / 2, "it was given no time: {took:?}");
    assert!(took < GRACE + SLACK, "{took:?}");
}

fn what_ran_away_from_its_group_is_ended_too(stage: &Stage) {
    // A daemon: its parents have gone.
    let daemon = "echo $$; (setsid sh -c '(sh -c \"echo \\$\\$; exec sleep 1000\" &)' &); \
                  sleep 1000 & echo $!; sleep 1000 & echo $!; wait";
    let (run, tree) = tree(stage, &["--lease", "5s", "x"], daemon);
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    ends_with_76(run, &tree, "`x` was lost");
}

fn a_hold_that_lasted_too_long_ends_the_command(stage: &Stage) {
    let (run, tree) = tree(stage, &["--max-hold", "6s", "x"], TREE);
    ends_with_76(run, &tree, "as long as it may be");
    assert!(!stage.is_held("x"));
}

fn a_fixed_lease_that_runs_out_ends_the_command(stage: &Stage) {
    let (run, tree) = tree(stage, &["--lease", "6s", "--fixed", "x"], TREE);
    ends_with_76(run, &tree, "lease ran out");
}

fn a_command_may_use_its_grace_to_put_things_right(stage: &Stage) {
    let script = "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let words = [
        "run",
        "--max-hold",
        "6s",
        "--grace",
        "10s",
        "x",
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut run = stage.start(&words);
    run.says("ready");
    run.says("tidied");
    assert_eq!(run.end().code, 76, "it was lost, however the command ends");
}

fn a_quick_command_whose_lock_went_first_is_76_too(stage: &Stage) {
    let mut command = stage.command(&["run", "x", "--", "sh", "-c", "echo held; read line"]);
    let (input, end) = std::io::pipe().expect("pipes can be made");
    command.stdin(input);
    let mut run = Running::start(command);
    run.says("held");
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    drop(end);
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains("`x` was lost"), "{ended:?}");
}

fn a_stopped_command_is_ended_too(stage: &Stage) {
    let (run, tree) = tree(stage, &["--lease", "5s", "x"], TREE);
    for pid in &tree {
        kill(pid_of(pid), Signal::SIGSTOP).expect("it is there");
    }
    wait_until("they stand still", || {
        tree.iter().all(|pid| state(pid) == Some('T'))
    });
    // Nobody has ended, and nothing is lost.
    assert!(stage.is_held("x"));
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    ends_with_76(run, &tree, "`x` was lost");
}

fn a_run_that_was_stopped_until_its_lock_had_gone_wakes_its_command_only_to_end_it(stage: &Stage) {
    // Whoever is woken before it is told to end has the time to say so.
    let script = "trap 'echo woken' CONT; echo $$; while :; do :; done";
    let words = [
        "run", "--lease", "6s", "--fixed", "x", "--", "sh", "-c", script,
    ];
    let mut run = stage.start(&words);
    let command = run.line();
    let ours = run.pid().to_string();
    run.signal(Signal::SIGTSTP);
    wait_until("both have stopped", || {
        [&command, &ours].iter().all(|pid| state(pid) == Some('T'))
    });
    wait_until("the lease is over", || !stage.is_held("x"));
    run.signal(Signal::SIGCONT);
    let ended = run.end();
    assert_eq!((ended.code, &*ended.out), (76, ""), "{ended:?}");
}

#[test]
fn a_command_that_stops_itself_again_and_again_is_killed() {
    let stage = Stage::redis();
    let script = "trap 'kill -STOP $$' TERM; echo $$; echo $$; echo $$; echo $$; \
                  while :; do kill -STOP $$; done";
    let words = ["--lease", "5s", "--grace", "300ms", "x"];
    let (run, tree) = tree(&stage, &words, script);
    wait_until("it stands still", || state(&tree[0]) == Some('T'));
    stage.server().cmd(&["DEL", "x"]);
    ends_with_76(run, &tree, "`x` was lost");
}

#[test]
fn a_deleted_key_ends_the_command() {
    let stage = Stage::redis();
    let (run, tree) = tree(&stage, &["--lease", "5s", "x"], TREE);
    stage.server().cmd(&["DEL", "x"]);
    ends_with_76(run, &tree, "`x` was lost");
}

#[test]
fn a_server_that_is_gone_ends_the_command_when_its_lease_does() {
    let stage = Stage::redis();
    let (run, tree) = tree(&stage, &["--lease", "5s", "x"], TREE);
    stage.server().kill();
    ends_with_76(run, &tree, "lease ran out");
}

#[test]
fn a_server_that_stands_still_ends_the_command_when_its_lease_does() {
    let stage = Stage::redis();
    let (run, tree) = tree(&stage, &["--lease", "5s", "x"], TREE);
    stage.server().stop_process();
    ends_with_76(run, &tree, "lease ran out");
    stage.server().continue_process();
}

/// A run of a script that says four pids.
fn tree(stage: &Stage, words: &[&str], script: &str) -> (Running, Vec<String>) {
    let words = [&["run"][..], words, &["--", "sh", "-c", script]].concat();
    let mut run = stage.start(&words);
    let tree: Vec<_> = (0..4).map(|_| run.line()).collect();
    for pid in &tree {
        assert!(is_alive(pid), "{pid} of {tree:?}");
    }
    (run, tree)
}

fn ends_with_76(run: Running, tree: &[String], why: &str) {
    let begun = Instant::now();
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains(why), "{ended:?}");
    assert!(begun.elapsed() < SLACK * 2, "{:?}", begun.elapsed());
    for pid in tree {
        assert!(!is_alive(pid), "{pid} of {tree:?} was left behind");
        let entry = format!("/proc/{pid}");
        assert!(
            !std::path::Path::new(&entry).exists(),
            "{pid} was not buried"
        );
    }
}
