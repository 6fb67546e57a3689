//! Tests of `--permits N`, and of several names.

use crate::stage::{Stage, object};

on_every_store! {
    as_many_commands_run_at_once_as_there_are_permits,
    a_nested_run_runs_under_the_permit,
    permit_holders_are_shown,
    a_permit_left_to_its_lease_is_released_by_its_owner,
    all_names_are_acquired_or_none,
    the_command_finds_a_line_for_each_name,
    a_name_held_by_an_outer_run_is_not_waited_for,
    the_loss_of_one_lock_ends_the_command,
    a_name_that_is_given_twice_is_acquired_once,
    permits_of_several_names_are_acquired_together,
    a_command_whose_locks_were_all_lost_exits_with_76,
}

const US: &str = env!("CARGO_BIN_EXE_distlock");

fn as_many_commands_run_at_once_as_there_are_permits(stage: &Stage) {
    let one = stage.hold_with(&["--permits", "2", "x"]);
    let _other = stage.hold_with(&["--permits", "2", "x"]);
    let busy = ["run", "--permits", "2", "--wait", "0", "x", "--", "true"];
    let refused = stage.run(&busy);
    assert_eq!((refused.code, &*refused.out), (75, ""), "{refused:?}");
    assert!(refused.err.contains("sleep 1000 and 1 more"), "{refused:?}");
    let waiter = stage.start(&["run", "--permits", "2", "x", "--", "true"]);
    stage.is_awaited_for("x");
    drop(one);
    assert_eq!(waiter.end().code, 0);
    assert_eq!(stage.run(&busy).code, 0);
}

fn a_nested_run_runs_under_the_permit(stage: &Stage) {
    let inside = format!("{US} run --permits 1 --wait 0 x -- echo inside");
    let ran = stage.run(&["run", "--permits", "1", "x", "--", "sh", "-c", &inside]);
    assert_eq!((ran.code, &*ran.out), (0, "inside\n"), "{ran:?}");
    let inside = format!("{US} run --wait 0 x -- echo inside");
    let ran = stage.run(&["run", "--permits", "1", "x", "--", "sh", "-c", &inside]);
    assert_eq!((ran.code, &*ran.out), (64, ""), "{ran:?}");
    assert!(ran.err.contains("holders of permits"), "{ran:?}");
    for (name, around) in [("y", &["--permits", "2"][..]), ("z", &["--read"])] {
        let inside = format!("{US} run --permits 1 --wait 0 {name} -- echo inside");
        let words = [&["run"], around, &[name, "--", "sh", "-c", &inside]].concat();
        let ran = stage.run(&words);
        assert_eq!((ran.code, &*ran.out), (64, ""), "{ran:?}");
    }
}

fn permit_holders_are_shown(stage: &Stage) {
    let _one = stage.hold_with(&["--permits", "3", "x"]);
    let _other = stage.hold_with(&["--permits", "3", "x"]);
    let shown = stage.run(&["show", "x"]);
    assert!(shown.out.contains("kind      semaphore\n"), "{shown:?}");
    let permits = "permits   2 in use, 1 available\n";
    assert!(shown.out.contains(permits), "{shown:?}");
    assert_eq!(shown.out.matches("command   sh -c").count(), 2, "{shown:?}");
    let lock = object(&stage.run(&["ls", "--json"]).out);
    assert_eq!(lock["kind"], "semaphore", "{lock}");
    assert_eq!(lock["permits"]["available"], 1, "{lock}");
    assert_eq!(lock["permits"]["out"], 2, "{lock}");
    assert_eq!(lock["holders"].as_array().map(Vec::len), Some(2), "{lock}");
}

fn a_permit_left_to_its_lease_is_released_by_its_owner(stage: &Stage) {
    let acquire = ["acquire", "--permits", "1", "--lease", "1m", "--wait", "0"];
    let words = [&acquire[..], &["x"]].concat();
    let taken = stage.run(&words);
    assert_eq!(taken.code, 0, "{taken:?}");
    assert_eq!(stage.run(&words).code, 75);
    let owner = taken.out.trim();
    let release = ["release", "x", "--owner", owner];
    assert_eq!(stage.run(&release).code, 0);
    assert_eq!(stage.run(&release).code, 1);
    assert_eq!(stage.run(&words).code, 0);
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
}

fn all_names_are_acquired_or_none(stage: &Stage) {
    let holder = stage.hold("b");
    let both = ["run", "--wait", "0", "a", "b", "--", "echo", "both"];
    let busy = stage.run(&both);
    assert_eq!((busy.code, &*busy.out), (75, ""), "{busy:?}");
    let who = busy.err.starts_with("distlock: `b` is held by ");
    assert!(who && busy.err.contains("sleep 1000"), "{busy:?}");
    assert!(!stage.is_held("a"), "or none");
    let waiter = stage.start(&["run", "b", "a", "b", "--", "echo", "both"]);
    stage.is_awaited_for("b");
    drop(holder);
    let ran = waiter.end();
    assert_eq!((ran.code, &*ran.out), (0, "both\n"));
    assert!(!stage.is_held("a") && !stage.is_held("b"));
}

fn the_command_finds_a_line_for_each_name(stage: &Stage) {
    let script = "echo \"$DISTLOCK_NAME\"; echo \"$DISTLOCK_OWNER\"; echo \"$DISTLOCK_TOKEN\"";
    let words = ["run", "--fenced", "b", "a", "--", "sh", "-c", script];
    let ran = stage.run(&words);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    let [first, second, owner, other, token, last] = lines[..] else {
        panic!("{ran:?}");
    };
    assert_eq!((first, second), ("b", "a"), "as they were given");
    assert!(owner.contains(':') && other.contains(':'), "{ran:?}");
    for token in [token, last] {
        assert!(token.parse::<u64>().is_ok_and(|token| token > 0), "{ran:?}");
    }
}

fn a_name_held_by_an_outer_run_is_not_waited_for(stage: &Stage) {
    let inside = format!("{US} run --wait 0 a b -- sh -c 'echo \"$DISTLOCK_NAME\"'");
    let ran = stage.run(&["run", "a", "--", "sh", "-c", &inside]);
    assert_eq!((ran.code, &*ran.out), (0, "a\nb\n"), "{ran:?}");
    let ran = stage.run(&["run", "b", "a", "--", "sh", "-c", &inside]);
    assert_eq!((ran.code, &*ran.out), (0, "a\nb\n"), "{ran:?}");
    assert!(!stage.is_held("a") && !stage.is_held("b"));
}

fn the_loss_of_one_lock_ends_the_command(stage: &Stage) {
    let mut running = stage.start(&[
        "run",
        "--lease",
        "5s",
        "a",
        "b",
        "--",
        "sh",
        "-c",
        "echo held; exec sleep 1000",
    ]);
    running.says("held");
    assert_eq!(stage.run(&["release", "--force", "b"]).code, 0);
    let ended = running.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains("`b` was lost"), "{ended:?}");
    assert!(!stage.is_held("a"));
}

fn a_name_that_is_given_twice_is_acquired_once(stage: &Stage) {
    let ran = stage.run(&["run", "--wait", "0", "x", "x", "--", "echo", "once"]);
    assert_eq!((ran.code, &*ran.out), (0, "once\n"), "{ran:?}");
    let words = [
        "run",
        "--permits",
        "1",
        "--wait",
        "0",
        "y",
        "y",
        "--",
        "true",
    ];
    assert_eq!(stage.run(&words).code, 0);
}

fn permits_of_several_names_are_acquired_together(stage: &Stage) {
    let _one = stage.hold_with(&["--permits", "2", "a", "b"]);
    let words = |names: &[&'static str]| {
        let before = ["run", "--permits", "2", "--wait", "0"];
        [&before[..], names, &["--", "true"]].concat()
    };
    assert_eq!(stage.run(&words(&["a", "b"])).code, 0);
    let _other = stage.hold_with(&["--permits", "2", "b"]);
    assert_eq!(stage.run(&words(&["a", "b"])).code, 75);
    assert_eq!(stage.run(&words(&["a"])).code, 0);
}

/// The code is the same however many locks were lost, and though the command ended well.
fn a_command_whose_locks_were_all_lost_exits_with_76(stage: &Stage) {
    let url = stage.url();
    for names in [&["a"][..], &["a", "b"], &["c", "b", "a"]] {
        let force = names
            .iter()
            .map(|name| format!("{US} release --url '{url}' --force {name}"));
        let force = force.collect::<Vec<_>>().join(" && ");
        let words = [&["run"][..], names, &["--", "sh", "-c", &force]].concat();
        let ran = stage.run(&words);
        assert_eq!(ran.code, 76, "{ran:?}");
        assert!(ran.err.contains("was lost"), "{ran:?}");
    }
}
