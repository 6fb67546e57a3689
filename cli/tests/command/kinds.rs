//! Tests of `--fair`, `--read` and `--write`.

use serde_json::Value;

use crate::stage::{Stage, object, wait_until};

on_every_store! {
    commands_run_in_arrival_order,
    a_fair_lock_and_a_plain_one_exclude_each_other,
    queued_waiters_are_shown,
    a_release_removes_no_waiter,
    readers_run_together_and_exclude_writers,
    a_writer_runs_alone,
    a_reader_nested_in_a_writer_runs_under_its_hold,
    a_writer_nested_in_a_reader_is_rejected,
    every_reader_is_shown,
    a_run_accepts_one_kind_only,
}

const US: &str = env!("CARGO_BIN_EXE_distlock");

fn commands_run_in_arrival_order(stage: &Stage) {
    let holder = stage.hold_with(&["--fair", "x"]);
    let mut waiting = Vec::new();
    for number in 0..4 {
        let script = format!("echo {number} >> {}", stage.file("order"));
        waiting.push(stage.start(&["run", "--fair", "x", "--", "sh", "-c", &script]));
        wait_for_waiters(stage, number + 1);
    }
    drop(holder);
    for run in waiting {
        assert_eq!(run.end().code, 0);
    }
    assert_eq!(stage.read("order"), "0\n1\n2\n3\n");
    assert!(!stage.is_held("x"));
}

fn a_fair_lock_and_a_plain_one_exclude_each_other(stage: &Stage) {
    for (held, wanted) in [(&["--fair"][..], &[][..]), (&[], &["--fair"])] {
        let _holder = stage.hold_with(&[held, &["x"]].concat());
        let busy = stage.run(&[&["run"], wanted, &["--wait", "0", "x", "--", "true"]].concat());
        assert_eq!((busy.code, &*busy.out), (75, ""), "{busy:?}");
    }
}

fn queued_waiters_are_shown(stage: &Stage) {
    let _holder = stage.hold_with(&["--fair", "x"]);
    let _waiter = stage.start(&["run", "--fair", "x", "--", "true"]);
    wait_for_waiters(stage, 1);
    let shown = stage.run(&["show", "--json", "x"]);
    let lock = object(&shown.out);
    assert_eq!(lock["kind"], "fair", "{lock}");
    let first = lock["waiting"][0].as_str().expect("an owner");
    let shown = stage.run(&["show", "x"]);
    let line = format!("waiting   1 in the queue, {first} first\n");
    assert!(shown.out.contains(&line), "{shown:?}");
}

/// A waiter holds nothing that could be released, and its id is shown by `show`.
fn a_release_removes_no_waiter(stage: &Stage) {
    for (holds, waits) in [("--fair", "--fair"), ("--read", "--write")] {
        let holder = stage.hold_with(&[holds, "x"]);
        let waiter = stage.start(&["run", waits, "x", "--", "true"]);
        wait_for_waiters(stage, 1);
        let waiting = || object(&stage.run(&["show", "--json", "x"]).out)["waiting"].clone();
        let before = waiting();
        let first = before[0].as_str().expect("an owner");
        let release = stage.run(&["release", "x", "--owner", first]);
        assert_eq!(release.code, 1, "{release:?}");
        assert_eq!(waiting(), before);
        drop(holder);
        assert_eq!(waiter.end().code, 0);
    }
}

fn readers_run_together_and_exclude_writers(stage: &Stage) {
    let one = stage.hold_with(&["--read", "x"]);
    let other = stage.hold_with(&["--read", "x"]);
    let busy = ["run", "--write", "--wait", "0", "x", "--", "true"];
    let refused = stage.run(&busy);
    assert_eq!((refused.code, &*refused.out), (75, ""), "{refused:?}");
    assert!(refused.err.ends_with(" and 1 more\n"), "{refused:?}");
    let mut writer = stage.start(&["run", "--write", "x", "--", "echo", "alone"]);
    wait_for_waiters(stage, 1);
    let behind = stage.run(&["run", "--read", "--wait", "0", "x", "--", "true"]);
    assert_eq!(behind.code, 75, "{behind:?}");
    assert!(behind.err.contains("a writer waits for `x`"), "{behind:?}");
    drop(one);
    assert!(writer.is_running());
    drop(other);
    writer.says("alone");
    assert_eq!(writer.end().code, 0);
}

fn a_writer_runs_alone(stage: &Stage) {
    let _writer = stage.hold_with(&["--write", "x"]);
    for kind in ["--read", "--write"] {
        let busy = stage.run(&["run", kind, "--wait", "0", "x", "--", "true"]);
        assert_eq!((busy.code, &*busy.out), (75, ""), "{kind}: {busy:?}");
    }
}

fn a_reader_nested_in_a_writer_runs_under_its_hold(stage: &Stage) {
    let script = format!("exec {US} run --read x -- echo inside");
    let ran = stage.run(&["run", "--write", "x", "--", "sh", "-c", &script]);
    assert_eq!((ran.code, &*ran.out), (0, "inside\n"), "{ran:?}");
}

fn a_writer_nested_in_a_reader_is_rejected(stage: &Stage) {
    for kind in ["--write", ""] {
        let script = format!("exec {US} run {kind} x -- echo inside");
        let ran = stage.run(&["run", "--read", "x", "--", "sh", "-c", &script]);
        assert_eq!((ran.code, &*ran.out), (64, ""), "{ran:?}");
        assert!(ran.err.contains("the outer run needs `--write`"), "{ran:?}");
    }
    let script = format!("exec {US} run --read x -- echo inside");
    let ran = stage.run(&["run", "--read", "x", "--", "sh", "-c", &script]);
    assert_eq!((ran.code, &*ran.out), (0, "inside\n"), "{ran:?}");
}

fn every_reader_is_shown(stage: &Stage) {
    let _one = stage.hold_with(&["--read", "--lease", "6s", "x"]);
    let _other = stage.hold_with(&["--read", "--lease", "25s", "x"]);
    let lock = object(&stage.run(&["show", "--json", "x"]).out);
    assert_eq!(
        (&lock["kind"], length(&lock, "holders")),
        (&"read".into(), 2)
    );
    // Each holder has its own lease.
    let leases = lock["holders"].as_array().into_iter().flatten();
    let leases = leases.map(|holder| holder["ttl_ms"].as_u64());
    let (shortest, longest) = (leases.clone().min(), leases.max());
    assert_eq!(longest.flatten().is_some(), stage.lasts(true, false));
    if stage.lasts(true, false) {
        let (shortest, longest) = (shortest.flatten(), longest.flatten());
        assert!(
            shortest.is_some() && shortest <= Some(6_000) && longest > Some(10_000),
            "{lock:?}"
        );
    }
    let listed = stage.run(&["ls"]);
    assert_eq!(listed.out.matches("  read  ").count(), 2, "{listed:?}");
    let shown = stage.run(&["show", "x"]);
    assert_eq!(shown.out.matches("lease  ").count(), 2, "{shown:?}");
}

fn a_run_accepts_one_kind_only(stage: &Stage) {
    for kinds in [["--read", "--write"], ["--fair", "--fenced"]] {
        let ran = stage.run(&[&["run"][..], &kinds, &["x", "--", "true"]].concat());
        assert_eq!((ran.code, &*ran.out), (64, ""), "{ran:?}");
    }
}

/// Waits until this many waiters for `x` are known.
fn wait_for_waiters(stage: &Stage, count: usize) {
    wait_until("they wait", || {
        let shown = stage.run(&["show", "--json", "x"]);
        length(&object(&shown.out), "waiting") == count
    });
}

fn length(lock: &Value, list: &str) -> usize {
    lock[list].as_array().map_or(0, Vec::len)
}
