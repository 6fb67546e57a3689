//! Tests of `ls`, `show`, `release`, `acquire` and `watch`.

use serde_json::Value;

use crate::stage::{Running, Stage, object, wait_until};

on_every_store! {
    a_store_without_holds_has_an_empty_list,
    a_list_shows_the_holder_of_each_lock,
    a_pattern_filters_the_list,
    one_lock_is_shown_in_detail,
    a_lease_without_renewal_is_shown_as_such,
    json_is_one_object_per_line,
    control_characters_in_names_and_labels_are_escaped,
    no_lookup_shows_a_password,
    an_acquired_lock_stays_held_until_its_owner_releases_it,
    an_acquired_lock_ends_with_its_lease,
    another_owner_cannot_release_an_acquired_lock,
    a_lock_is_not_force_released_without_confirmation,
    a_watch_prints_events,
    a_watch_sees_each_grant_and_its_release,
    a_watch_reports_each_kind,
}

fn a_store_without_holds_has_an_empty_list(stage: &Stage) {
    for words in [&["ls"][..], &["ls", "--json"], &["ls", "x*"]] {
        let ran = stage.run(words);
        assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "", ""));
    }
}

fn a_list_shows_the_holder_of_each_lock(stage: &Stage) {
    let holder = stage.hold("nightly");
    let _other = stage.hold("a much longer name");
    let ran = stage.run(&["ls"]);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines.len(), 3, "{ran:?}");
    assert!(lines[0].starts_with("NAME "), "{ran:?}");
    assert!(
        lines[1].starts_with("a much longer name  "),
        "sorted: {ran:?}"
    );
    let pid = format!("pid {}: sh -c echo held; exec sleep 1000", holder.pid());
    assert!(
        lines[2].starts_with("nightly  ") && lines[2].ends_with(&pid),
        "{ran:?}"
    );
    assert!(!ran.out.contains('\u{1b}'), "no colours on a pipe: {ran:?}");
    let column = lines[0].find("HELD FOR").expect("a heading");
    for line in &lines[1..] {
        assert!(
            line[column..].starts_with(|c: char| c.is_ascii_digit()),
            "{ran:?}"
        );
    }
}

fn a_pattern_filters_the_list(stage: &Stage) {
    let _held = (
        stage.hold("order:1"),
        stage.hold("order:22"),
        stage.hold("stock"),
    );
    let names = |pattern: &str| -> Vec<String> {
        let ran = stage.run(&["ls", "--json", pattern]);
        let lines = ran.out.lines().map(object);
        lines
            .map(|line| line["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(names("order:*"), ["order:1", "order:22"]);
    assert_eq!(names("order:?"), ["order:1"]);
    assert_eq!(names("x"), [""; 0]);
}

fn one_lock_is_shown_in_detail(stage: &Stage) {
    let holder = stage.hold("x");
    let ran = stage.run(&["show", "x"]);
    assert_eq!(ran.code, 0);
    for word in [
        "name      x",
        &format!("pid {}", holder.pid()),
        "since     20",
        "owner ",
        stage.lasts(" unless renewed\n", "lease     while it runs"),
    ] {
        assert!(ran.out.contains(word), "{word}: {ran:?}");
    }
    let free = stage.run(&["show", "y"]);
    assert_eq!((free.code, &*free.out), (1, ""));
    assert_eq!(free.err, "distlock: `y` is not held\n");
}

fn a_lease_without_renewal_is_shown_as_such(stage: &Stage) {
    assert_eq!(stage.run(&["acquire", "left", "--lease", "1h"]).code, 0);
    let _held = stage.hold_with(&["--lease", "1h", "--fixed", "fixed"]);
    for name in ["left", "fixed"] {
        let shown = stage.run(&["show", name]).out;
        let lease = shown.lines().find(|line| line.starts_with("lease"));
        let lease = lease.expect("it is shown");
        assert!(lease.starts_with("lease     ends in 59m "), "{shown}");
        assert!(
            !lease.contains("renewed") && !shown.contains("(ended"),
            "{shown}"
        );
    }
}

fn json_is_one_object_per_line(stage: &Stage) {
    let _held = (stage.hold("a\nb"), stage.hold("x"));
    for (words, lines) in [
        (&["ls", "--json"][..], 2),
        (&["show", "--json", "a\nb"], 1),
        (&["show", "--json", "free"], 1),
        (&["acquire", "--json", "--lease", "1m", "new"], 1),
    ] {
        let ran = stage.run(words);
        assert_eq!(ran.out.lines().count(), lines, "{ran:?}");
        for line in ran.out.lines() {
            assert!(object(line)["name"].is_string(), "{line}");
        }
    }
    let x = object(stage.run(&["show", "--json", "x"]).out.trim());
    let holder = &x["holders"][0];
    assert_eq!(holder["hold_count"], 1);
    assert_eq!(holder["owner"].as_str().map(str::len), Some(38));
    assert!(
        holder["since"]
            .as_str()
            .is_some_and(|since| since.ends_with('Z'))
    );
    let ttl = x["ttl_ms"].as_u64();
    assert!(ttl.is_none_or(|ttl| ttl > 0 && ttl <= 30_000), "{x}");
    assert_eq!(ttl.is_some(), stage.lasts(true, false), "{x}");
    let free = object(stage.run(&["show", "--json", "free"]).out.trim());
    assert_eq!(
        (&free["holders"], &free["ttl_ms"]),
        (&Value::Array(vec![]), &Value::Null)
    );
}

fn control_characters_in_names_and_labels_are_escaped(stage: &Stage) {
    let _held = stage.hold("a\u{1b}[2Jb");
    // The label is one that another client may have written.
    stage.set_label("c\u{1b}[2Jd@web1 pid 4242 since 2026-11-16T02:00:00Z: e\u{1b}[2Jf\r\u{9b}2J");
    let is_harmless = |said: &str| {
        for part in ["a\\u{1b}[2Jb", "c\\u{1b}[2Jd", "e\\u{1b}[2Jf"] {
            assert!(said.contains(part), "{part}: {said:?}");
        }
        let order = |letter: char| letter.is_control() && letter != '\n';
        assert!(!said.contains(order), "{said:?}");
    };
    for words in [&["ls"][..], &["show", "a\u{1b}[2Jb"]] {
        is_harmless(&stage.run(words).out);
    }
    is_harmless(&stage.start(&["watch"]).line());
    let busy = stage.run(&["run", "--wait", "0", "a\u{1b}[2Jb", "--", "true"]);
    is_harmless(&busy.err);
}

fn an_acquired_lock_stays_held_until_its_owner_releases_it(stage: &Stage) {
    let ran = stage.run(&["acquire", "deploy", "--lease", "10m"]);
    assert_eq!((ran.code, &*ran.err), (0, ""));
    let owner = ran.out.trim();
    assert!(stage.is_held("deploy"));
    let shown = stage.run(&["show", "deploy"]);
    assert!(
        shown.out.contains("distlock acquire"),
        "it says who it was: {shown:?}"
    );
    assert_eq!(
        stage
            .run(&["run", "--wait", "0", "deploy", "--", "true"])
            .code,
        75
    );
    let given = stage.run(&["release", "deploy", "--owner", owner]);
    assert_eq!((given.code, &*given.out, &*given.err), (0, "", ""));
    let again = stage.run(&["release", "deploy", "--owner", owner]);
    assert_eq!(again.code, 1);
    assert!(!stage.is_held("deploy"));
}

fn an_acquired_lock_ends_with_its_lease(stage: &Stage) {
    assert_eq!(stage.run(&["acquire", "x", "--lease", "3s"]).code, 0);
    let waited = stage.run(&["acquire", "x", "--lease", "3s", "--wait", "20s"]);
    assert_eq!(waited.code, 0, "{waited:?}");
}

fn another_owner_cannot_release_an_acquired_lock(stage: &Stage) {
    let one = stage.run(&["acquire", "one", "--lease", "10m"]);
    let ran = stage.run(&["acquire", "two", "--lease", "10m"]);
    assert_eq!((one.code, ran.code), (0, 0));
    let wrong = stage.run(&["release", "one", "--owner", ran.out.trim()]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("`one`"), "{wrong:?}");
    assert!(stage.is_held("one") && stage.is_held("two"));
}

fn a_lock_is_not_force_released_without_confirmation(stage: &Stage) {
    let _holder = stage.hold("x");
    let unasked = stage.run(&["release", "x"]);
    assert_eq!(unasked.code, 64);
    assert!(unasked.err.contains("--force"), "the way out: {unasked:?}");
    let held = "`x` is held by ";
    assert!(unasked.err.contains(held), "{unasked:?}");
    assert!(
        unasked.err.contains("sleep 1000"),
        "the holder: {unasked:?}"
    );
    assert!(stage.is_held("x"));
    assert_eq!(stage.run(&["release", "x", "--force"]).code, 0);
    assert!(!stage.is_held("x"));
    for words in [&["release", "x", "--force"][..], &["release", "x"]] {
        let free = stage.run(words);
        assert_eq!((free.code, &*free.err), (1, "distlock: `x` is not held\n"));
    }
}

fn a_watch_prints_events(stage: &Stage) {
    let _held = stage.hold("old");
    let mut watch = stage.start(&["watch", "--json"]);
    let mut next = || {
        let event = object(&watch.line());
        let text = |field: &str| event[field].as_str().expect("text").to_owned();
        assert!(text("at").ends_with('Z'));
        (text("event"), text("name"), text("owner"))
    };
    let (event, name, _) = next();
    assert_eq!((&*event, &*name), ("held", "old"));
    let owner = stage.run(&["acquire", "new", "--lease", "10m"]).out;
    let owner = owner.trim().to_owned();
    assert_eq!(next(), ("granted".into(), "new".into(), owner.clone()));
    assert_eq!(stage.run(&["release", "new", "--owner", &owner]).code, 0);
    assert_eq!(next(), ("released".into(), "new".into(), owner));
    let owner = stage.run(&["acquire", "short", "--lease", "6s"]).out;
    let owner = owner.trim().to_owned();
    assert_eq!(next(), ("granted".into(), "short".into(), owner.clone()));
    assert_eq!(next(), ("expired".into(), "short".into(), owner));

    let mut words = Running::start(stage.command(&["watch", "o*"]));
    let line = words.line();
    assert!(
        line.contains("  held      old  ") && line.contains("sleep 1000"),
        "{line}"
    );
}

fn a_watch_reports_each_kind(stage: &Stage) {
    let _held = stage.hold("old");
    let mut watch = stage.start(&["watch", "--json"]);
    assert_eq!(object(&watch.line())["kind"], "plain");
    for kind in ["read", "write", "simple", "fenced", "fair"] {
        let option = format!("--{kind}");
        let owner = stage.run(&["acquire", kind, &option, "--lease", "10m"]).out;
        let owner = owner.split_whitespace().next().expect("an owner");
        let shown = match kind {
            // There is no waiter: a server cannot tell a fair lock from a plain one.
            "fair" if stage.lasts(true, false) => "plain",
            kind => kind,
        };
        let mut is_told = |event: &str| {
            let told = object(&watch.line());
            assert_eq!(told["event"], event, "{told}");
            assert_eq!(told["kind"], shown, "{told}");
        };
        is_told("granted");
        assert_eq!(stage.run(&["release", kind, "--owner", owner]).code, 0);
        is_told("released");
    }
    let guard = stage.run(&["acquire", "prices", "--write", "--lease", "10m"]);
    assert_eq!(guard.code, 0);
    let mut words = Running::start(stage.command(&["watch", "pri*"]));
    let line = words.line();
    assert!(line.contains("  held      prices (write)  "), "{line}");
}

fn a_watch_sees_each_grant_and_its_release(stage: &Stage) {
    let _held = stage.hold("old");
    let mut watch = stage.start(&["watch", "--json"]);
    assert_eq!(object(&watch.line())["event"], "held");
    for round in 0..3 {
        let seen = stage.file(&format!("seen-{round}"));
        let until_seen = format!("until [ -e {seen} ]; do sleep 0.02; done");
        let quick = stage.start(&["run", "quick", "--", "sh", "-c", &until_seen]);
        let granted = object(&watch.line());
        assert_eq!(
            (&granted["event"], &granted["name"]),
            (&"granted".into(), &"quick".into())
        );
        std::fs::write(&seen, "").expect("a file can be written");
        assert_eq!(quick.end().code, 0);
        let released = object(&watch.line());
        assert_eq!(
            (&released["event"], &released["name"]),
            (&"released".into(), &"quick".into())
        );
        assert_eq!(released["owner"], granted["owner"]);
    }
    let mut words = stage.start(&["watch"]);
    assert!(words.line().contains("  held      old  "));
    assert_eq!(stage.run(&["release", "old", "--force"]).code, 0);
    let line = words.line();
    let word = stage.lasts("  released  old  ", "  forced    old  ");
    assert!(line.contains(word) && line.contains("sleep 1000"), "{line}");
}

fn no_lookup_shows_a_password(stage: &Stage) {
    let command = "distlock run --url redis://ann:secret@db/ x";
    let script = format!("echo held; exec sleep 1000 # {command}");
    let mut run = stage.start(&["run", "x", "--", "sh", "-c", &script]);
    run.says("held");
    // The label is stored in the background, a moment after the grant.
    wait_until("its label is seen", || {
        stage.run(&["show", "x"]).out.contains("redis://***@db/")
    });
    for words in [
        &["ls"][..],
        &["ls", "--json"],
        &["show", "x"],
        &["show", "--json", "x"],
        &["run", "--wait", "0", "x", "--", "true"],
    ] {
        let ran = stage.run(words);
        let said = ran.out + &ran.err;
        assert!(said.contains("//***@db"), "{words:?}: {said}");
        assert!(!said.contains("secret"), "{words:?}: {said}");
    }
    for words in [&["watch"][..], &["watch", "--json"]] {
        let line = stage.start(words).line();
        assert!(
            line.contains("//***@db") && !line.contains("secret"),
            "{line}"
        );
    }
}

#[test]
fn data_that_is_no_lock_is_rejected_in_the_words_of_the_command() {
    let stage = Stage::redis();
    stage.server().cmd(&["RPUSH", "jobs", "one"]);
    stage.server().cmd(&["SET", "{side}:timeout", "x"]);
    let refused = |words: &[&str], begin: &str, end: &str| {
        let ran = stage.run(words);
        assert_eq!(ran.code, 69, "{words:?} {ran:?}");
        assert!(ran.err.starts_with(begin), "{words:?} {ran:?}");
        assert!(ran.err.ends_with(end), "{words:?} {ran:?}");
        assert!(!ran.err.contains("WRONGTYPE"), "{words:?} {ran:?}");
    };
    let lock = "distlock: `jobs` is not a lock (";
    refused(&["show", "jobs"], lock, ")\n");
    refused(&["release", "jobs"], lock, ")\n");
    refused(&["release", "--force", "jobs"], lock, ")\n");
    let kind = "distlock: `jobs` is not a lock of this kind (";
    let option = "or the option for its kind if it is a lock of another kind\n";
    refused(&["run", "jobs", "--", "true"], kind, option);
    refused(&["acquire", "--lease", "1m", "jobs"], kind, option);
    let latch = "distlock: `jobs` is not a latch (";
    refused(
        &["latch", "set", "jobs", "1"],
        latch,
        "choose another name\n",
    );
    let semaphore = "distlock: `jobs` is not a semaphore (";
    refused(
        &["permits", "set", "jobs", "1"],
        semaphore,
        "choose another name\n",
    );
    let beside = "distlock: `side` is not a semaphore (the key of its permits in use, {NAME}:timeout, has a value of another type)";
    refused(
        &["permits", "set", "side", "1"],
        beside,
        "choose another name\n",
    );
}

#[test]
fn a_list_never_requests_all_keys_at_once() {
    let stage = Stage::redis();
    let _held = stage.hold("x");
    let before = (
        stage.server().commandstats("keys"),
        stage.server().commandstats("scan"),
    );
    assert_eq!(stage.run(&["ls"]).out.lines().count(), 2);
    let after = (
        stage.server().commandstats("keys"),
        stage.server().commandstats("scan"),
    );
    assert_eq!(after.0, before.0);
    assert!(after.1 > before.1);
}

#[test]
fn a_label_is_stored_outside_the_lock_key() {
    let stage = Stage::redis();
    let _held = stage.hold("x");
    let lock = stage.server().hgetall("x");
    assert_eq!(lock.len(), 1, "as Redisson keeps it: {lock:?}");
    assert_eq!(lock.values().next().map(String::as_str), Some("1"));
}
