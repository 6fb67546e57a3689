//! Tests of every exit code of `run`.

use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::{Signal, kill};

use crate::stage::{Stage, distlock, is_alive, pid_of, ran};

const US: &str = env!("CARGO_BIN_EXE_distlock");

on_every_store! {
    the_exit_code_of_the_command_is_passed_on,
    a_command_ended_by_a_signal_exits_with_the_code_of_shells,
    a_missing_command_exits_with_127,
    a_command_that_cannot_be_executed_exits_with_126,
    control_characters_in_a_missing_command_are_escaped,
    the_lock_is_free_after_each_exit,
    background_processes_of_a_command_are_left_running,
    too_few_open_files_are_reported_without_a_panic,
}

fn the_exit_code_of_the_command_is_passed_on(stage: &Stage) {
    for code in [0, 1, 3, 64, 75, 127, 255] {
        let exit = format!("exit {code}");
        let ran = stage.run(&["run", "x", "--", "sh", "-c", &exit]);
        assert_eq!((ran.code, &*ran.out, &*ran.err), (code, "", ""));
    }
}

fn a_command_ended_by_a_signal_exits_with_the_code_of_shells(stage: &Stage) {
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        let suicide = format!("kill -{signal} $$");
        assert_eq!(
            stage.run(&["run", "x", "--", "sh", "-c", &suicide]).code,
            code
        );
    }
}

fn a_missing_command_exits_with_127(stage: &Stage) {
    for command in ["no-such-command-anywhere", "/no/such/file", ""] {
        let ran = stage.run(&["run", "x", "--", command]);
        assert_eq!(ran.code, 127, "{ran:?}");
        assert!(ran.err.starts_with("distlock: cannot run `"), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
}

fn a_command_that_cannot_be_executed_exits_with_126(stage: &Stage) {
    let file = stage.file("plain");
    std::fs::write(&file, "#!/bin/sh\n").expect("the folder is ours");
    let plain = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&file, plain).expect("the file is ours");
    let folder = stage.file("");
    for command in [&file, &folder] {
        let ran = stage.run(&["run", "x", "--", command]);
        assert_eq!(ran.code, 126, "{ran:?}");
        assert!(ran.err.starts_with("distlock: cannot run `"), "{ran:?}");
    }
}

fn control_characters_in_a_missing_command_are_escaped(stage: &Stage) {
    let file = stage.file("a\u{1b}[2J\u{202e}b");
    std::fs::write(&file, "").expect("the folder is ours");
    for (command, code) in [("no\u{1b}[2J\u{202e}such", 127), (&*file, 126)] {
        let ran = stage.run(&["run", "x", "--", command]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.err.contains("\\u{1b}[2J\\u{202e}"), "{ran:?}");
        assert!(is_harmless(&ran.err), "{ran:?}");
    }
    let long = stage.run(&["run", "x", "--", &"x".repeat(3000)]);
    assert!(long.err.len() < 1000, "{}", long.err.len());
}

fn is_harmless(text: &str) -> bool {
    let text = text.strip_suffix('\n').unwrap_or(text);
    !text.contains(|c: char| c.is_control() || c == '\u{202e}')
}

#[test]
fn control_characters_in_invalid_arguments_are_escaped() {
    let odd = "\u{1b}[2J\u{202e}";
    let file = format!("sqlite:/proc/self/{odd}/x");
    for words in [
        &[odd][..],
        &["run", odd],
        &["run", "--wait", odd, "x", "--", "true"],
        &["ls", "--url", odd],
        &["ls", "--url", &file],
        &["doctor", "--url", &file],
    ] {
        let ran = ran(distlock(words));
        assert!(matches!(ran.code, 64 | 69), "{ran:?}");
        let said = ran.out.lines().chain(ran.err.lines());
        assert!(said.into_iter().all(is_harmless), "{ran:?}");
    }
}

fn the_lock_is_free_after_each_exit(stage: &Stage) {
    for command in [
        &["true"][..],
        &["false"],
        &["no-such-command"],
        &["sh", "-c", "kill -9 $$"],
    ] {
        stage.run(&[&["run", "x", "--"][..], command].concat());
        assert!(!stage.is_held("x"), "{command:?}");
    }
}

fn background_processes_of_a_command_are_left_running(stage: &Stage) {
    let mut run = stage.start(&["run", "x", "--", "sh", "-c", "sleep 1000 & echo $!; exit 4"]);
    let left = run.line();
    assert_eq!(run.end().code, 4);
    assert!(is_alive(&left) && !stage.is_held("x"));
    kill(pid_of(&left), Signal::SIGKILL).expect("it is there");
}

fn too_few_open_files_are_reported_without_a_panic(stage: &Stage) {
    for limit in 6..=14 {
        let script = format!("ulimit -n {limit}; exec {US} run --wait 1m x -- true");
        let ran = ran(stage.shell(&script));
        let expected = if limit < 9 { &[71][..] } else { &[0, 69, 71] };
        assert!(expected.contains(&ran.code), "{limit}: {ran:?}");
        let lines = usize::from(ran.code != 0);
        assert_eq!(ran.err.lines().count(), lines, "{limit}: {ran:?}");
        if ran.code == 71 {
            let message = "distlock: cannot start: Too many open files (os error 24); raise the limit (`ulimit -n`)\n";
            assert_eq!(ran.err, message, "{limit}");
        }
    }
}

#[test]
fn an_unreachable_store_exits_with_69() {
    let nobody = "redis://127.0.0.1:1/";
    for words in [
        &["run", "--url", nobody, "x", "--", "true"][..],
        &["run", "--url", nobody, "--wait", "0", "x", "--", "true"],
        &["ls", "--url", nobody],
        &["show", "--url", nobody, "x"],
        &["watch", "--url", nobody],
        &["acquire", "--url", nobody, "x", "--lease", "1m"],
        &["release", "--url", nobody, "x", "--force"],
    ] {
        let ran = ran(distlock(words));
        assert_eq!(ran.code, 69, "{words:?}: {ran:?}");
        assert!(ran.err.starts_with("distlock: "), "{ran:?}");
        assert!(ran.err.contains("DISTLOCK_URL"), "the way out: {ran:?}");
        assert_eq!((ran.err.lines().count(), &*ran.out), (1, ""), "{ran:?}");
    }
}

#[test]
fn a_password_is_never_shown() {
    let ran = ran(distlock(&["ls", "--url", "redis://me:secret@127.0.0.1:1/"]));
    assert_eq!(ran.code, 69);
    assert!(!ran.err.contains("secret"), "{ran:?}");
    let help = distlock(&["run", "--help"])
        .env("DISTLOCK_URL", "redis://me:secret@127.0.0.1:1/")
        .output()
        .expect("distlock can be started");
    assert!(!String::from_utf8_lossy(&help.stdout).contains("secret"));
}
