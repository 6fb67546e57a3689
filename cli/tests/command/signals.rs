//! Tests of signals: those sent to distlock reach the command.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::stage::{Running, Stage, distlock, is_alive, pid_of, state, wait_until};

on_every_store! {
    a_terminating_signal_is_forwarded_to_the_command_which_decides,
    a_command_that_ignores_a_signal_continues,
    the_whole_group_is_ended_not_only_the_shell,
    user_signals_reach_only_the_command,
    a_terminated_waiter_leaves_nothing_behind,
    ignored_signals_stay_ignored,
    blocked_signals_are_still_received,
    a_stopped_run_resumes,
    a_terminated_command_cleans_up_under_the_lock,
    processes_that_outlive_a_terminated_command_are_killed,
}

fn a_terminating_signal_is_forwarded_to_the_command_which_decides(stage: &Stage) {
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
    ] {
        let script = format!(
            "trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.01; done"
        );
        let mut run = stage.start(&["run", "x", "--", "sh", "-c", &script]);
        run.says("ready");
        run.signal(signal);
        run.says(&format!("got {name}"));
        assert_eq!(run.end().code, 7);
        assert!(!stage.is_held("x"));
    }
}

fn a_command_that_ignores_a_signal_continues(stage: &Stage) {
    let script = "trap '' TERM; echo ready; read line; echo $line; exit 3";
    let mut command = stage.command(&["run", "x", "--", "sh", "-c", script]);
    let (input, mut end) = std::io::pipe().expect("pipes can be made");
    command.stdin(input);
    let mut run = Running::start(command);
    run.says("ready");
    run.signal(Signal::SIGTERM);
    assert!(run.is_running() && stage.is_held("x"));
    end.write_all(b"done\n").expect("it reads");
    run.says("done");
    assert_eq!(run.end().code, 3);
}

fn the_whole_group_is_ended_not_only_the_shell(stage: &Stage) {
    let script = "sleep 1000 & echo $!; wait";
    let mut run = stage.start(&["run", "x", "--", "sh", "-c", script]);
    let sleeper = run.line();
    assert!(is_alive(&sleeper));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code, 143);
    wait_until("the sleeper is gone", || !is_alive(&sleeper));
}

fn user_signals_reach_only_the_command(stage: &Stage) {
    let script = "trap 'echo one' USR1; trap 'echo two; exit 5' USR2; sleep 1000 & echo $!; \
                  while :; do wait; done";
    let mut run = stage.start(&["run", "x", "--", "sh", "-c", script]);
    let sleeper = run.line();
    run.signal(Signal::SIGUSR1);
    run.says("one");
    assert!(is_alive(&sleeper), "it was not for the sleeper");
    run.signal(Signal::SIGUSR2);
    run.says("two");
    kill(pid_of(&sleeper), Signal::SIGKILL).expect("the sleeper is there");
    assert_eq!(run.end().code, 5);
}

fn a_terminated_waiter_leaves_nothing_behind(stage: &Stage) {
    let holder = stage.hold("x");
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
    ] {
        let waiter = stage.start(&["run", "x", "--", "echo", "never"]);
        stage.is_awaited();
        waiter.signal(signal);
        let ended = waiter.end();
        assert_eq!((ended.code, &*ended.out), (code, ""));
    }
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.end().code, 143);
    assert!(!stage.is_held("x"));
}

fn ignored_signals_stay_ignored(stage: &Stage) {
    let script =
        "trap 'echo got HUP' HUP; grep SigIgn /proc/self/status; echo ready; sleep 0.3; exit 4";
    let mut command = Command::new("setsid");
    command
        .args(["nohup", env!("CARGO_BIN_EXE_distlock")])
        .args(["run", "x", "--", "sh", "-c", script])
        .env("DISTLOCK_URL", stage.url())
        .stdin(Stdio::null());
    let mut run = Running::start(command);
    let mask = run.line();
    let mask = mask.trim_start_matches("SigIgn:").trim();
    let mask = u64::from_str_radix(mask, 16).expect("a mask");
    assert_eq!(mask & 1, 1, "the command ignores HUP as well");
    run.says("ready");
    run.signal(Signal::SIGHUP);
    assert_eq!(run.end().code, 4);
}

fn blocked_signals_are_still_received(stage: &Stage) {
    let run = Running::start(blocked(stage, &["run", "x", "--", "sh", "-c", "exit 3"]));
    let ended = run.end();
    assert_eq!((ended.code, &*ended.err), (3, ""), "{ended:?}");
    assert!(!stage.is_held("x"));
    let script = "trap 'echo one' USR1; trap 'echo got TERM; exit 7' TERM; echo ready; \
                  while :; do sleep 0.01; done";
    let mut run = Running::start(blocked(stage, &["run", "x", "--", "sh", "-c", script]));
    run.says("ready");
    run.signal(Signal::SIGUSR1);
    run.says("one");
    let ours = run.pid().to_string();
    run.signal(Signal::SIGTSTP);
    wait_until("we have stopped", || state(&ours) == Some('T'));
    run.signal(Signal::SIGCONT);
    run.signal(Signal::SIGTERM);
    run.says("got TERM");
    assert_eq!(run.end().code, 7);
}

/// Returns `distlock` with every signal blocked that can be.
fn blocked(stage: &Stage, words: &[&str]) -> Command {
    let mut command = Command::new("setsid");
    command
        .args(["env", "--block-signal", env!("CARGO_BIN_EXE_distlock")])
        .args(words)
        .env("DISTLOCK_URL", stage.url())
        .stdin(Stdio::null());
    command
}

fn a_stopped_run_resumes(stage: &Stage) {
    // The command is one process: a shell that waits for a stopped child to become its command is not stopped itself.
    let script = "echo $$; exec sleep 1000";
    let mut run = stage.start(&["run", "x", "--", "sh", "-c", script]);
    let command = run.line();
    let ours = run.pid().to_string();
    run.signal(Signal::SIGTSTP);
    wait_until("the command has stopped, and we have", || {
        state(&command) == Some('T') && state(&ours) == Some('T')
    });
    run.signal(Signal::SIGCONT);
    wait_until("both go on", || {
        state(&command) != Some('T') && state(&ours) != Some('T')
    });
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code, 143);
}

fn a_terminated_command_cleans_up_under_the_lock(stage: &Stage) {
    // The shell dies at once; its child uses the whole grace.
    let file = stage.file("enough");
    let child = format!(
        "trap 'until [ -e {file} ]; do sleep 0.05; done; echo tidied; exit 0' TERM; echo ready; \
         while :; do sleep 0.01; done"
    );
    let script = format!("sh -c \"{child}\"; true");
    let words = ["run", "--grace", "20s", "x", "--", "sh", "-c", &script];
    let mut run = stage.start(&words);
    run.says("ready");
    let shell = command_of(&run);
    run.signal(Signal::SIGTERM);
    wait_until("the shell is gone", || !is_alive(&shell));
    assert!(stage.is_held("x"), "somebody is still at work");
    std::fs::write(&file, "").expect("the folder is ours");
    run.says("tidied");
    assert_eq!(run.end().code, 143);
    assert!(!stage.is_held("x"));
}

/// Returns the pid of the command.
fn command_of(run: &Running) -> String {
    let list = format!("/proc/{0}/task/{0}/children", run.pid());
    let list = std::fs::read_to_string(list).expect("it runs");
    list.trim().to_owned()
}

fn processes_that_outlive_a_terminated_command_are_killed(stage: &Stage) {
    // The shell dies at once, and is reaped; the rest of its group ignores TERM.
    let stubborn = "trap \"\" TERM; echo $$; while :; do sleep 0.05; done";
    let script = format!("sh -c '{stubborn}' & wait");
    let words = ["run", "--grace", "300ms", "x", "--", "sh", "-c", &script];
    let mut run = stage.start(&words);
    let left = run.line();
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code, 143);
    assert!(!is_alive(&left));
    assert!(!stage.is_held("x"));
}

#[test]
fn an_unresponsive_server_does_not_delay_termination() {
    for words in [
        &["run", "x", "--", "echo", "never"][..],
        &["acquire", "x", "--lease", "1m"],
    ] {
        for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
            let mut took: Vec<Option<Duration>> = Vec::new();
            // A run that waits for the server does so for two seconds, every time; a busy machine is slow now and then.
            while took
                .iter()
                .flatten()
                .all(|took| *took >= Duration::from_secs(2))
            {
                assert!(took.len() < 20, "{took:?}");
                took.push(ends_after(words, signal, code));
            }
        }
    }
}

/// The exit code for a store that has not replied.
const UNAVAILABLE: i32 = 69;

/// Returns how long a run that waits for the server's reply takes to end; none if it has given up before the signal.
fn ends_after(words: &[&str], signal: Signal, code: i32) -> Option<Duration> {
    // Each run has a server of its own, so that none takes another's connection for its own.
    let server = TcpListener::bind("127.0.0.1:0").expect("there are free ports");
    let address = server.local_addr().expect("it has one");
    let mut command = distlock(words);
    command.env("DISTLOCK_URL", format!("redis://{address}/"));
    let run = Running::start(command);
    let (_call, _) = server.accept().expect("it calls");
    let begun = Instant::now();
    run.signal(signal);
    let ended = run.end();
    if ended.code == UNAVAILABLE {
        return None;
    }
    assert_eq!((ended.code, &*ended.out), (code, ""), "{ended:?}");
    Some(begun.elapsed())
}
