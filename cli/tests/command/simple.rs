//! Tests of `--simple`: the lock that redis-py, redsync and redlock know.

use crate::stage::{Stage, object, ran};

on_every_store! {
    commands_run_one_at_a_time,
    a_name_is_of_one_kind_at_a_time,
    the_kind_is_shown,
    an_acquired_lock_stays_held_until_its_owner_releases_it,
    an_acquired_lock_ends_with_its_lease,
    a_force_release_ends_the_command,
    a_watch_prints_events,
    a_nested_run_runs_under_the_outer_hold,
}

const US: &str = env!("CARGO_BIN_EXE_distlock");

fn commands_run_one_at_a_time(stage: &Stage) {
    let holder = stage.hold_with(&["--simple", "x"]);
    let busy = stage.run(&["run", "--simple", "--wait", "0", "x", "--", "true"]);
    assert_eq!(busy.code, 75);
    let pid = format!("pid {}", holder.pid());
    assert!(busy.err.contains(&pid), "it says who has it: {busy:?}");
    let mut waiter = stage.start(&["run", "--simple", "x", "--", "echo", "mine"]);
    stage.is_awaited();
    assert!(waiter.is_running());
    drop(holder);
    waiter.says("mine");
    assert_eq!(waiter.end().code, 0);
    assert!(!stage.is_held("x"));
}

fn a_name_is_of_one_kind_at_a_time(stage: &Stage) {
    for (held, wanted) in [(&["--simple"][..], &[][..]), (&[], &["--simple"])] {
        let _holder = stage.hold_with(&[held, &["x"]].concat());
        let command = ["--wait", "0", "x", "--", "echo", "never"];
        let refused = stage.run(&[&["run"], wanted, &command].concat());
        assert_eq!((refused.code, &*refused.out), (69, ""), "{refused:?}");
        assert!(
            refused.err.contains("not a lock of this kind"),
            "{refused:?}"
        );
    }
}

fn the_kind_is_shown(stage: &Stage) {
    let _held = (stage.hold("a"), stage.hold_with(&["--simple", "b"]));
    let list = stage.run(&["ls"]).out;
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split("  ").map(str::trim);
        let cells = cells.filter(|cell| !cell.is_empty());
        cells.take(2).map(str::to_owned).collect()
    };
    let rows: Vec<_> = list.lines().map(cells).collect();
    assert_eq!(rows, [["NAME", "KIND"], ["a", "plain"], ["b", "simple"]]);

    let kinds = |words: &[&str]| -> Vec<serde_json::Value> {
        let ran = stage.run(words);
        ran.out
            .lines()
            .map(|line| object(line)["kind"].clone())
            .collect()
    };
    assert_eq!(kinds(&["ls", "--json"]), ["plain", "simple"]);
    assert_eq!(kinds(&["show", "--json", "a"]), ["plain"]);
    assert_eq!(kinds(&["show", "--json", "b"]), ["simple"]);
    assert_eq!(
        kinds(&["show", "--json", "free"]),
        [serde_json::Value::Null]
    );
    for (name, kind) in [("a", "kind      plain\n"), ("b", "kind      simple\n")] {
        let shown = stage.run(&["show", name]).out;
        assert!(shown.contains(kind), "{shown}");
    }
    let acquire = |words: &[&str]| {
        let words = [&["acquire", "--json", "--lease", "1m"], words].concat();
        object(stage.run(&words).out.trim())["kind"].clone()
    };
    assert_eq!(acquire(&["c"]), "plain");
    assert_eq!(acquire(&["--simple", "d"]), "simple");
}

fn an_acquired_lock_stays_held_until_its_owner_releases_it(stage: &Stage) {
    let acquire = ["acquire", "--simple", "--lease", "10m", "deploy"];
    let taken = stage.run(&acquire);
    assert_eq!((taken.code, &*taken.err), (0, ""));
    let owner = taken.out.trim();
    let busy = stage.run(&[&acquire[..], &["--wait", "0"]].concat());
    assert_eq!(busy.code, 75, "{busy:?}");
    // Another owner, the same in every respect but that it holds nothing.
    let other = format!("{owner}1");
    let wrong = stage.run(&["release", "deploy", "--owner", &other]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(stage.is_held("deploy"));
    let given = stage.run(&["release", "deploy", "--owner", owner]);
    assert_eq!((given.code, &*given.err), (0, ""));
    assert!(!stage.is_held("deploy"));
    assert_eq!(stage.run(&["release", "deploy", "--owner", owner]).code, 1);
}

fn an_acquired_lock_ends_with_its_lease(stage: &Stage) {
    let acquire = ["acquire", "--simple", "--lease", "3s", "x"];
    assert_eq!(stage.run(&acquire).code, 0);
    let waited = stage.run(&[&acquire[..], &["--wait", "20s"]].concat());
    assert_eq!(waited.code, 0, "{waited:?}");
}

fn a_force_release_ends_the_command(stage: &Stage) {
    let holder = stage.hold_with(&["--simple", "--lease", "5s", "x"]);
    let forced = stage.run(&["release", "--force", "x"]);
    assert_eq!((forced.code, &*forced.err), (0, ""));
    let ended = holder.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(
        ended.err.contains("sending TERM to the command"),
        "{ended:?}"
    );
}

fn a_watch_prints_events(stage: &Stage) {
    let _held = stage.hold_with(&["--simple", "old"]);
    let mut watch = stage.start(&["watch", "--json"]);
    let mut next = || {
        let event = object(&watch.line());
        let text = |field: &str| event[field].as_str().expect("text").to_owned();
        (text("event"), text("name"), text("owner"))
    };
    let (event, name, _) = next();
    assert_eq!((&*event, &*name), ("held", "old"));
    let acquire = |name: &str, lease: &str| {
        let taken = stage.run(&["acquire", "--simple", "--lease", lease, name]);
        taken.out.trim().to_owned()
    };
    let owner = acquire("new", "10m");
    assert_eq!(next(), ("granted".into(), "new".into(), owner.clone()));
    assert_eq!(stage.run(&["release", "new", "--owner", &owner]).code, 0);
    assert_eq!(next(), ("released".into(), "new".into(), owner));
    let owner = acquire("short", "6s");
    assert_eq!(next(), ("granted".into(), "short".into(), owner.clone()));
    assert_eq!(next(), ("expired".into(), "short".into(), owner));
}

fn a_nested_run_runs_under_the_outer_hold(stage: &Stage) {
    let owner = "echo $DISTLOCK_NAME $DISTLOCK_OWNER";
    // An inner run of either kind finds the hold.
    for inner in ["--simple --wait 0", "--wait 0"] {
        let script = format!("{owner}; exec {US} run {inner} x -- sh -c '{owner}'");
        let ran = stage.run(&["run", "--simple", "x", "--", "sh", "-c", &script]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let words: Vec<_> = ran.out.split_whitespace().collect();
        assert_eq!(words.len(), 4, "{ran:?}");
        assert_eq!(words[..2], words[2..], "the same name and the same owner");
    }
    assert!(!stage.is_held("x"));
}

#[test]
fn the_key_is_what_other_libraries_look_for() {
    let stage = Stage::redis();
    let taken = stage.run(&["acquire", "--simple", "--lease", "10m", "x"]);
    let server = stage.server();
    assert_eq!(server.query::<String>(&["TYPE", "x"]), "string");
    assert_eq!(server.query::<String>(&["GET", "x"]), taken.out.trim());
    assert!((500_000..=600_000).contains(&server.pttl("x")));
    // The other libraries acquire it in this way.
    let set: Option<String> = server.query(&["SET", "x", "theirs", "NX", "PX", "60000"]);
    assert_eq!(set, None);
}

#[test]
fn a_lock_of_another_library_is_waited_for_and_unchanged() {
    let stage = Stage::redis();
    let theirs = ["SET", "x", "their-secret", "NX", "PX", "600000"];
    stage.server().cmd(&theirs);
    let busy = stage.run(&["run", "--simple", "--wait", "0", "x", "--", "true"]);
    assert_eq!(busy.code, 75);
    assert_eq!(busy.err, "distlock: `x` is held by another owner\n");
    // The content of such a string may be anything.
    assert_eq!(stage.run(&["ls"]).out, "");
    for words in [
        &["show", "x"][..],
        &["show", "--json", "x"],
        &["release", "x"],
        &["release", "--force", "x"],
        &["run", "--wait", "0", "x", "--", "true"],
    ] {
        let ran = stage.run(words);
        assert_eq!((ran.code, &*ran.out), (69, ""), "{words:?}: {ran:?}");
        assert!(!ran.err.contains("their-secret"), "{words:?}: {ran:?}");
    }
    let mut waiter = stage.start(&["run", "--simple", "x", "--", "echo", "mine"]);
    stage.is_awaited();
    assert_eq!(
        stage.server().query::<String>(&["GET", "x"]),
        "their-secret"
    );
    assert!(waiter.is_running());
    // No client is notified.
    stage.server().cmd(&["DEL", "x"]);
    waiter.says("mine");
    assert_eq!(waiter.end().code, 0);
}

#[test]
fn a_hold_replaced_by_another_library_is_not_inherited() {
    let stage = Stage::redis();
    let ran_before = stage.run(&[
        "run",
        "--simple",
        "x",
        "--",
        "sh",
        "-c",
        "echo \"$DISTLOCK_HELD\"",
    ]);
    stage.server().cmd(&["SET", "x", "theirs", "PX", "600000"]);
    let words = ["run", "--simple", "--wait", "0", "x", "--", "echo", "never"];
    let mut inside = stage.command(&words);
    inside.env("DISTLOCK_HELD", ran_before.out.trim());
    let refused = ran(inside);
    assert_eq!((refused.code, &*refused.out), (75, ""), "{refused:?}");
}

#[test]
fn a_server_without_scripts_is_sufficient() {
    let stage = Stage::redis();
    let server = stage.server();
    let rights = ["~*", "&*", "+@all", "-@scripting"];
    server.cmd(&[&["ACL", "SETUSER", "plain", "on", ">p"][..], &rights].concat());
    let address = format!("redis://plain:p@127.0.0.1:{}/", server.port());
    for kind in [&["--simple"][..], &["--fenced"], &[]] {
        let run = |url: &str| {
            let options = ["--url", url, "--lease", "4s", "--wait", "0"];
            let command = ["x", "--", "sh", "-c", "sleep 6; echo done"];
            stage.run(&[&["run"], kind, &options, &command].concat())
        };
        let refused = run(&address);
        assert_eq!((refused.code, &*refused.out), (69, ""), "{refused:?}");
        let ran = run(&format!("{address}?scripts=off"));
        // The lease was renewed meanwhile.
        assert_eq!((ran.code, &*ran.out), (0, "done\n"), "{ran:?}");
        assert!(!stage.is_held("x"));
    }
}
