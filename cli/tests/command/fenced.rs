//! Tests of `--fenced`: a token for each grant.

use crate::stage::{Stage, object, ran};

on_every_store! {
    consecutive_commands_get_increasing_tokens,
    a_fenced_lock_and_a_plain_one_exclude_each_other,
    a_fenced_lock_and_a_simple_one_cannot_share_a_name,
    a_lock_of_another_kind_has_no_token,
    a_nested_run_of_another_lock_does_not_have_the_outer_token,
    a_nested_run_has_the_token_of_its_hold,
    a_fenced_run_inside_a_hold_without_a_token_is_refused,
    the_token_of_an_ended_hold_is_ignored,
    the_kind_and_the_token_are_shown,
    an_acquired_lock_has_a_token_and_is_released_by_its_owner,
    a_force_release_ends_the_command_and_the_next_token_is_greater,
    a_watch_prints_events,
}

const US: &str = env!("CARGO_BIN_EXE_distlock");
/// A script that prints the token of its command.
const TOKEN: &str = "echo ${DISTLOCK_TOKEN-none}";
/// The microseconds of 2025: no token is less.
const LEAST: u64 = 1_735_689_600_000_000;

fn consecutive_commands_get_increasing_tokens(stage: &Stage) {
    let mut last = LEAST;
    for _ in 0..3 {
        let ran = stage.run(&["run", "--fenced", "x", "--", "sh", "-c", TOKEN]);
        assert_eq!((ran.code, &*ran.err), (0, ""), "{ran:?}");
        grows(&mut last, number(&ran.out));
    }
    // The next holder has waited.
    let mut holder = stage.start(&["run", "--fenced", "x", "--", "sh", "-c", HOLD]);
    grows(&mut last, number(&holder.line()));
    let mut waiter = stage.start(&["run", "--fenced", "x", "--", "sh", "-c", TOKEN]);
    stage.is_awaited();
    assert!(waiter.is_running());
    drop(holder);
    grows(&mut last, number(&waiter.line()));
    assert_eq!(waiter.end().code, 0);
    assert!(!stage.is_held("x"));
}

fn a_fenced_lock_and_a_plain_one_exclude_each_other(stage: &Stage) {
    for (held, wanted) in [(&["--fenced"][..], &[][..]), (&[], &["--fenced"])] {
        let holder = stage.hold_with(&[held, &["x"]].concat());
        let busy = stage.run(&[&["run"], wanted, &["--wait", "0", "x", "--", "true"]].concat());
        assert_eq!((busy.code, &*busy.out), (75, ""), "{busy:?}");
        let pid = format!("pid {}", holder.pid());
        assert!(busy.err.contains(&pid), "it says who has it: {busy:?}");
    }
}

fn a_fenced_lock_and_a_simple_one_cannot_share_a_name(stage: &Stage) {
    for (held, wanted) in [("--fenced", "--simple"), ("--simple", "--fenced")] {
        let _holder = stage.hold_with(&[held, "x"]);
        let refused = stage.run(&["run", wanted, "--wait", "0", "x", "--", "true"]);
        assert_eq!(refused.code, 69, "{refused:?}");
        assert!(
            refused.err.contains("not a lock of this kind"),
            "{refused:?}"
        );
    }
}

fn a_lock_of_another_kind_has_no_token(stage: &Stage) {
    for kind in [&[][..], &["--simple"]] {
        let words = [&["run"], kind, &["x", "--", "sh", "-c", TOKEN]].concat();
        let mut command = stage.command(&words);
        // The variable is a leftover of another run.
        command.env("DISTLOCK_TOKEN", "7");
        let ran = ran(command);
        assert_eq!((ran.code, &*ran.out), (0, "none\n"), "{kind:?}: {ran:?}");
    }
}

fn a_nested_run_of_another_lock_does_not_have_the_outer_token(stage: &Stage) {
    for (kind, has_own) in [("", false), ("--simple", false), ("--fenced", true)] {
        let script = format!("{TOKEN}; exec {US} run {kind} inner -- sh -c '{TOKEN}'");
        let ran = stage.run(&["run", "--fenced", "outer", "--", "sh", "-c", &script]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let [outer, inner] = lines(&ran.out);
        if has_own {
            assert!(number(inner) > number(outer), "{ran:?}");
        } else {
            assert_eq!(inner, "none", "{ran:?}");
        }
    }
}

fn a_nested_run_has_the_token_of_its_hold(stage: &Stage) {
    // An inner run of any kind, and one inside another lock, finds the hold.
    for inside in [
        "run --fenced --wait 0 x -- ",
        "run --wait 0 x -- ",
        &format!("run y -- {US} run --fenced --wait 0 x -- "),
    ] {
        let script = format!("{TOKEN}; exec {US} {inside} sh -c '{TOKEN}'");
        let ran = stage.run(&["run", "--fenced", "x", "--", "sh", "-c", &script]);
        assert_eq!(ran.code, 0, "{inside}: {ran:?}");
        let [outer, inner] = lines(&ran.out);
        assert!(number(outer) > LEAST, "{ran:?}");
        assert_eq!(outer, inner, "{inside}");
    }
}

fn a_fenced_run_inside_a_hold_without_a_token_is_refused(stage: &Stage) {
    for kind in [&[][..], &["--simple"]] {
        let inner = [US, "run", "--fenced", "x", "--", "echo", "never"];
        let ran = stage.run(&[&["run"], kind, &["x", "--"], &inner].concat());
        assert_eq!((ran.code, &*ran.out), (64, ""), "{ran:?}");
        assert!(ran.err.contains("`--fenced` as well"), "{ran:?}");
        assert!(!stage.is_held("x"));
    }
}

fn the_token_of_an_ended_hold_is_ignored(stage: &Stage) {
    let script = format!("{TOKEN}; echo \"$DISTLOCK_HELD\"");
    let before = stage.run(&["run", "--fenced", "x", "--", "sh", "-c", &script]);
    let [old, held] = lines(&before.out);
    let mut command = stage.command(&["run", "--fenced", "x", "--", "sh", "-c", TOKEN]);
    command
        .env("DISTLOCK_HELD", held)
        .env("DISTLOCK_TOKEN", old);
    let again = ran(command);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(number(&again.out) > number(old), "{again:?}");
    // A plain hold of the same name: the store still knows the last token, which is not this hold's.
    let script = format!("exec {US} run x -- sh -c '{TOKEN}'");
    let mut command = stage.command(&["run", "x", "--", "sh", "-c", &script]);
    command
        .env("DISTLOCK_HELD", held)
        .env("DISTLOCK_TOKEN", old);
    let plain = ran(command);
    assert_eq!((plain.code, &*plain.out), (0, "none\n"), "{plain:?}");
}

fn the_kind_and_the_token_are_shown(stage: &Stage) {
    let mut held = stage.start(&["run", "--fenced", "a", "--", "sh", "-c", HOLD]);
    let token = held.line();
    let _plain = stage.hold("b");
    let list = stage.run(&["ls"]).out;
    let row = list.lines().find(|line| line.starts_with("a "));
    let kind = row.and_then(|row| row.split_whitespace().nth(1));
    assert_eq!(kind, Some("fenced"), "{list}");
    let tokens = |words: &[&str]| -> Vec<serde_json::Value> {
        let lines = stage.run(words).out;
        lines
            .lines()
            .map(|line| object(line)["token"].clone())
            .collect()
    };
    let expected = serde_json::Value::from(number(&token));
    let none = || serde_json::Value::Null;
    assert_eq!(tokens(&["ls", "--json"]), [expected.clone(), none()]);
    assert_eq!(tokens(&["show", "--json", "a"]), [expected]);
    assert_eq!(tokens(&["show", "--json", "b"]), [none()]);
    assert_eq!(tokens(&["show", "--json", "free"]), [none()]);
    let shown = stage.run(&["show", "a"]).out;
    let expected = format!("kind      fenced\ntoken     {token}\n");
    assert!(shown.contains(&expected), "{shown}");
    assert!(!stage.run(&["show", "b"]).out.contains("token"));
}

fn an_acquired_lock_has_a_token_and_is_released_by_its_owner(stage: &Stage) {
    let acquire = ["acquire", "--fenced", "--lease", "10m", "deploy"];
    let taken = stage.run(&acquire);
    assert_eq!((taken.code, &*taken.err), (0, ""));
    let [owner, token] = lines(&taken.out);
    let mut last = LEAST;
    grows(&mut last, number(token));
    let busy = stage.run(&[&acquire[..], &["--wait", "0"]].concat());
    assert_eq!((busy.code, &*busy.out), (75, ""), "{busy:?}");
    assert_eq!(stage.run(&["release", "deploy", "--owner", owner]).code, 0);
    assert!(!stage.is_held("deploy"));

    let json = |words: &[&str]| {
        let words = [&["acquire", "--json", "--lease", "10m"], words].concat();
        object(stage.run(&words).out.trim())
    };
    let taken = json(&["--fenced", "deploy"]);
    assert_eq!(taken["kind"], "fenced");
    grows(&mut last, taken["token"].as_u64().expect("a number"));
    let plain = json(&["other"]);
    assert!(plain["token"].is_null(), "{plain}");
    // The output of a plain lock stays one line.
    let plain = stage.run(&["acquire", "--lease", "10m", "third"]);
    assert_eq!(plain.out.lines().count(), 1, "{plain:?}");
}

fn a_force_release_ends_the_command_and_the_next_token_is_greater(stage: &Stage) {
    let words = ["run", "--fenced", "--lease", "5s", "x", "--", "sh", "-c"];
    let mut holder = stage.start(&[&words[..], &[HOLD]].concat());
    let lost = number(&holder.line());
    let forced = stage.run(&["release", "--force", "x"]);
    assert_eq!((forced.code, &*forced.err), (0, ""));
    let ended = holder.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    let next = stage.run(&[&words[..], &[TOKEN]].concat());
    assert!(number(&next.out) > lost, "{next:?}");
}

fn a_watch_prints_events(stage: &Stage) {
    let _held = stage.hold_with(&["--fenced", "old"]);
    let mut watch = stage.start(&["watch", "--json"]);
    let mut next = || {
        let event = object(&watch.line());
        let text = |field: &str| event[field].as_str().expect("text").to_owned();
        (text("event"), text("name"), text("owner"))
    };
    let (event, name, _) = next();
    assert_eq!((&*event, &*name), ("held", "old"));
    let taken = stage.run(&["acquire", "--fenced", "--lease", "10m", "new"]);
    let [owner, _] = lines(&taken.out);
    assert_eq!(next(), ("granted".into(), "new".into(), owner.into()));
    assert_eq!(stage.run(&["release", "new", "--owner", owner]).code, 0);
    assert_eq!(next(), ("released".into(), "new".into(), owner.into()));
}

#[test]
fn the_token_is_in_redissons_counter() {
    let stage = Stage::redis();
    let ran = stage.run(&["run", "--fenced", "x", "--", "sh", "-c", TOKEN]);
    let server = stage.server();
    let counter: u64 = server.query(&["GET", "redisson_lock_token:{x}"]);
    assert_eq!(counter, number(&ran.out));
    // Redisson increments the counter in this way.
    server.cmd(&["INCR", "redisson_lock_token:{x}"]);
    let next = stage.run(&["run", "--fenced", "x", "--", "sh", "-c", TOKEN]);
    assert!(number(&next.out) > counter + 1, "{next:?}");
}

/// A script that prints its token, and holds on.
const HOLD: &str = "echo $DISTLOCK_TOKEN; exec sleep 1000";

/// Parses a token as a command finds it: digits, and nothing else.
#[track_caller]
fn number(text: &str) -> u64 {
    let text = text.trim_end();
    assert!(text.bytes().all(|byte| byte.is_ascii_digit()), "`{text}`");
    text.parse().expect("digits")
}

/// Checks that the token is greater than `last`, and replaces `last`.
#[track_caller]
fn grows(last: &mut u64, token: u64) {
    assert!(token > *last, "{token} after {last}");
    *last = token;
}

#[track_caller]
fn lines<const N: usize>(text: &str) -> [&str; N] {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .try_into()
        .unwrap_or_else(|_| panic!("not {N} lines: {text}"))
}
