//! Tests of every bad argument.

use crate::stage::{Stage, distlock, ran};

#[test]
fn invalid_usage_exits_with_64_and_a_reason_on_one_line() {
    for (line, about) in [
        ("", "subcommand"),
        ("walk", "walk"),
        ("run", "NAME"),
        ("run x", "COMMAND"),
        ("run x --", "COMMAND"),
        ("run x ls", "distlock run NAME -- COMMAND"),
        ("run --wait", "--wait"),
        ("run --wait soon x -- ls", "soon"),
        ("run --wait 5 x -- ls", "`5` has no unit"),
        ("run --wait -5s x -- ls", "-5"),
        ("run --lease 5x x -- ls", "5x"),
        ("run --at-least 1h1h x -- ls", "1h1h"),
        ("run --max-hold s x -- ls", "max-hold"),
        ("run --grace 5 x -- ls", "`5` has no unit"),
        ("run --busy-code 256 x -- ls", "256"),
        ("run --busy-code x x -- ls", "busy-code"),
        ("run --fixed x -- ls", "--lease"),
        ("run --leese 5s x -- ls", "--lease"),
        ("run --wait 1s --wait 2s x -- ls", "--wait"),
        ("ls a b", "b"),
        ("ls --wait 5s", "--wait"),
        ("show", "NAME"),
        ("acquire --lease 5s --busy-code 0 x", "busy-code"),
        ("acquire x", "--lease"),
        ("acquire --lease 5s", "NAME"),
        ("release", "NAME"),
        ("release x --owner y --force", "--force"),
        ("watch a b", "b"),
        ("doctor x", "x"),
        ("completions", "SHELL"),
        ("completions tcl", "tcl"),
    ] {
        let words: Vec<_> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let ran = ran(distlock(&words));
        assert_eq!(ran.code, 64, "{line}: {ran:?}");
        assert_eq!(
            (ran.err.lines().count(), &*ran.out),
            (1, ""),
            "{line}: {ran:?}"
        );
        assert!(ran.err.starts_with("distlock: "), "{line}: {ran:?}");
        assert!(ran.err.contains(about), "{line}: {ran:?}");
        assert!(ran.err.contains("--help`"), "the way out: {ran:?}");
    }
}

#[test]
fn arguments_rejected_by_the_store_exit_with_64_as_well() {
    let stage = Stage::redis();
    for (words, about) in [
        (&["run", "", "--", "true"][..], "name"),
        (&["show", ""], "name"),
        (&["ls", "--url", ""], "is empty"),
        (
            &["run", "--url", "sqlite:~/locks.db", "x", "--", "true"],
            "only a shell expands `~`",
        ),
        (
            &["run", "--url", "memory:", "x", "--", "true"],
            "would exclude no other",
        ),
        (&["run", "--lease", "1ms", "x", "--", "true"], "lease"),
        (&["run", "--max-hold", "0", "x", "--", "true"], "max_hold"),
        (&["acquire", "x", "--lease", "0"], "lease"),
        (&["release", "x", "--owner", "me"], "owner"),
        (&["release", "x", "--owner", ""], "owner"),
    ] {
        let ran = stage.run(words);
        assert_eq!(ran.code, 64, "{words:?}: {ran:?}");
        assert!(ran.err.contains(about), "{words:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
    for url in [
        "nowhere",
        "http://127.0.0.1/",
        "redis://",
        "redis://127.0.0.1/x",
    ] {
        let ran = ran(distlock(&["ls", "--url", url]));
        assert_eq!(ran.code, 64, "{url}: {ran:?}");
    }
}

#[test]
fn a_name_that_is_not_utf8_is_rejected() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = distlock(&["show"]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff"));
    assert_eq!(ran(command).code, 64);
}

#[test]
fn the_internal_subcommand_rejects_direct_calls() {
    assert_eq!(ran(distlock(&["__child"])).code, 64);
    let orphan = ran(distlock(&["__child", "1", "echo", "never"]));
    assert_eq!(
        (orphan.code, &*orphan.out),
        (137, ""),
        "its parent is somebody else"
    );
}
