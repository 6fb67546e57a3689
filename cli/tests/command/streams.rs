//! Tests of the streams: what the command reads, writes and finds, and readers that stop reading.

use std::io::{PipeReader, PipeWriter, Write};
use std::process::Stdio;

use crate::stage::{Running, Stage, distlock, ran, wait_until};

on_every_store! {
    the_command_inherits_stdin_stdout_and_stderr,
    the_command_gets_the_name_and_owner_of_the_lock,
    arguments_reach_the_command_unchanged,
    distlock_run_writes_nothing_to_stdout,
    an_unread_stderr_delays_no_run,
    acquire_with_a_closed_output_exits_with_74_and_takes_no_lock,
    the_printed_owner_may_be_discarded,
}

fn the_command_inherits_stdin_stdout_and_stderr(stage: &Stage) {
    let mut command = stage.command(&["run", "x", "--", "sh", "-c", "tr a-z A-Z; echo oops >&2"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("distlock can be started");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"hello\n").expect("it is read");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"HELLO\n");
    assert_eq!(output.stderr, b"oops\n");
}

fn the_command_gets_the_name_and_owner_of_the_lock(stage: &Stage) {
    let show = "printf '%s\\n' \"$DISTLOCK_NAME\" \"$DISTLOCK_OWNER\"";
    let name = "a name: with = and 'quotes'";
    let ran = stage.run(&["run", name, "--", "sh", "-c", show]);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[0], name);
    let (client, number) = lines[1].split_once(':').expect("an owner has two parts");
    assert_eq!(client.len(), 36);
    number.parse::<i64>().expect("a number");
}

fn arguments_reach_the_command_unchanged(stage: &Stage) {
    let words = ["--wait", "", "a b", "-x", "--", "*", "$HOME", "ü"];
    let command = ["run", "x", "--", "printf", "[%s]"];
    let ran = stage.run(&[&command[..], &words].concat());
    let expected: String = words.iter().map(|word| format!("[{word}]")).collect();
    assert_eq!(ran.out, expected);
}

fn distlock_run_writes_nothing_to_stdout(stage: &Stage) {
    let holder = stage.hold_with(&["--max-hold", "4s", "--grace", "0", "x"]);
    let waiter = stage.run(&["run", "x", "--", "echo", "mine"]);
    assert_eq!((waiter.code, &*waiter.out, &*waiter.err), (0, "mine\n", ""));
    assert_eq!(holder.end().out, "");
}

fn an_unread_stderr_delays_no_run(stage: &Stage) {
    // The cases are a busy and a lost lock; output of the command itself is not distlock's.
    let _holder = stage.hold("busy");
    for (words, code) in [
        (&["run", "--wait", "2s", "busy", "--", "true"][..], 75),
        (
            &["run", "--max-hold", "500ms", "x", "--", "sleep", "1000"],
            76,
        ),
        (&["run", "x", "--", "no-such-command"], 127),
        (&["walk"], 64),
    ] {
        let (_reader, writer) = full_pipe();
        let mut command = stage.command(words);
        let child = command.stdout(Stdio::null()).stderr(writer).spawn();
        let mut child = child.expect("distlock can be started");
        let mut ended = None;
        wait_until("it ends", || {
            ended = child.try_wait().expect("it is our child");
            ended.is_some()
        });
        assert_eq!(
            ended.and_then(|ended| ended.code()),
            Some(code),
            "{words:?}"
        );
    }
    assert!(!stage.is_held("x"));
}

fn acquire_with_a_closed_output_exits_with_74_and_takes_no_lock(stage: &Stage) {
    let us = env!("CARGO_BIN_EXE_distlock");
    let script = format!("exec {us} \"$@\" >&-");
    for words in [
        &["acquire", "x", "--lease", "1h"][..],
        &["acquire", "x", "--lease", "1h", "--json"],
    ] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, "sh"]).args(words);
        command
            .env("DISTLOCK_URL", stage.url())
            .stdin(Stdio::null());
        let ran = ran(command);
        assert_eq!(ran.code, 74, "{ran:?}");
        assert!(ran.err.contains("the output is closed"), "{ran:?}");
        assert!(!stage.is_held("x"));
    }
}

fn the_printed_owner_may_be_discarded(stage: &Stage) {
    let mut command = stage.command(&["acquire", "x", "--lease", "1h"]);
    let ran = run_with_output(command.stdout(Stdio::null()));
    assert_eq!(ran, (0, String::new()));
    assert!(stage.is_held("x"));
}

/// Returns a pipe that is full.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("pipes can be made");
    let wait = |writer: &PipeWriter, wait: bool| {
        rustix::io::ioctl_fionbio(writer, !wait).expect("pipes need not wait");
    };
    wait(&writer, false);
    while writer.write(&[b'x'; 1024]).is_ok() {}
    wait(&writer, true);
    (reader, writer)
}

#[test]
fn a_closed_output_ends_distlock_quietly() {
    let stage = Stage::redis();
    let _holder = stage.hold("x");
    for words in [
        &["ls"][..],
        &["ls", "--json"],
        &["doctor"],
        &["--help"],
        &["completions", "bash"],
    ] {
        let mut command = stage.command(words);
        let (reader, writer) = std::io::pipe().expect("pipes can be made");
        drop(reader);
        let ran = run_with_output(command.stdout(writer));
        assert_eq!(ran, (0, String::new()), "{words:?}");
    }
}

#[test]
fn an_owner_that_cannot_be_printed_exits_with_74_and_leaves_no_hold() {
    let stage = Stage::redis();
    for words in [
        &["acquire", "x", "--lease", "1h"][..],
        &["acquire", "x", "--lease", "1h", "--json"],
    ] {
        // `distlock acquire … | true`, where the reader ends first.
        let (reader, writer) = std::io::pipe().expect("pipes can be made");
        drop(reader);
        let (code, err) = run_with_output(stage.command(words).stdout(writer));
        assert_eq!(code, 74, "{words:?}");
        assert!(err.contains("the lock is released"), "{err}");
        assert!(!stage.is_held("x"));
    }
}

#[test]
fn an_idle_watch_ends_when_its_output_is_closed() {
    let stage = Stage::redis();
    let _holder = stage.hold("x");
    let mut watch = Running::start(stage.command(&["watch"]));
    assert!(watch.line().contains("held"));
    let ended = watch.stop_reading();
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn an_unwritable_output_exits_with_74() {
    let stage = Stage::redis();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut help = distlock(&["--help"]);
    let (code, err) = run_with_output(help.stdout(full().expect("Linux has it")));
    assert_eq!(code, 74);
    assert!(err.contains("cannot write"), "{err}");
    // The owner was not printed, so no client could release the lock.
    let mut acquire = stage.command(&["acquire", "x", "--lease", "1h"]);
    let (code, _) = run_with_output(acquire.stdout(full().expect("Linux has it")));
    assert_eq!(code, 74);
    assert!(!stage.is_held("x"));
}

#[test]
fn a_closed_stderr_is_harmless() {
    let (reader, writer) = std::io::pipe().expect("pipes can be made");
    drop(reader);
    let mut command = distlock(&["walk"]);
    let status = command.stderr(writer).status().expect("it can be started");
    assert_eq!(status.code(), Some(64));
    assert_eq!(
        ran(distlock(&["--version"])).out,
        format!("distlock {}\n", env!("CARGO_PKG_VERSION"))
    );
}

/// Returns the exit code, and the output besides stdout.
fn run_with_output(command: &mut std::process::Command) -> (i32, String) {
    let child = command.stderr(Stdio::piped()).spawn();
    let output = child.expect("distlock can be started").wait_with_output();
    let output = output.expect("it ends");
    let code = output.status.code().expect("it was not killed");
    (code, String::from_utf8_lossy(&output.stderr).into_owned())
}
