//! Tests of the help, which fits a terminal, and of completions.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::stage::{distlock, ran};

const COMMANDS: [&str; 10] = [
    "run",
    "ls",
    "show",
    "watch",
    "acquire",
    "release",
    "latch",
    "permits",
    "doctor",
    "completions",
];

#[test]
fn help_fits_eighty_columns() {
    let mut pages = vec![vec!["--help"], vec!["-h"], vec!["help"]];
    for command in COMMANDS {
        pages.push(vec![command, "--help"]);
        pages.push(vec![command, "-h"]);
        pages.push(vec!["help", command]);
    }
    for words in pages {
        let ran = ran(distlock(&words));
        assert_eq!((ran.code, &*ran.err), (0, ""), "{words:?}");
        assert!(ran.out.contains("Usage: distlock"), "{words:?}");
        for line in ran.out.lines() {
            assert!(line.chars().count() <= 80, "{words:?}: {line}");
            assert_eq!(line.trim_end(), line, "{words:?}: blanks at the end");
        }
    }
}

#[test]
fn help_names_every_command_and_code() {
    let help = ran(distlock(&["--help"])).out;
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command}")), "{command}");
    }
    let run = ran(distlock(&["run", "--help"])).out;
    for word in [
        "64",
        "69",
        "75",
        "76",
        "126",
        "127",
        "DISTLOCK_NAME",
        "DISTLOCK_OWNER",
        "DISTLOCK_TOKEN",
    ] {
        assert!(run.contains(word), "{word}");
    }
    assert!(!help.contains("__child"), "that is not for people");
}

#[test]
fn completions_are_sound() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = ran(distlock(&["completions", shell]));
        assert_eq!((ran.code, &*ran.err), (0, ""));
        for option in ["at-least", "fenced", "simple"] {
            assert!(ran.out.contains(option), "{shell}: {option}");
        }
        assert!(!ran.out.contains("__child "), "{shell}");
    }
    // bash, the one shell that is everywhere, reads its own completions.
    let mut bash = Command::new("bash");
    let mut bash = bash
        .arg("-n")
        .stdin(Stdio::piped())
        .spawn()
        .expect("bash can be started");
    let mut script = bash.stdin.take().expect("it is piped");
    let completions = ran(distlock(&["completions", "bash"])).out;
    script
        .write_all(completions.as_bytes())
        .expect("bash reads");
    drop(script);
    assert!(bash.wait().expect("it ends").success());
}
