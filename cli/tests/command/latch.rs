//! `latch set`, `down` and `wait`.

use crate::stage::Stage;

on_every_store! {
    who_waits_goes_on_when_the_last_has_finished,
    a_latch_is_set_once,
    a_latch_that_nobody_has_set_is_open,
    a_wait_that_is_over_is_75,
    one_that_nobody_counts_down_any_more_is_seen_and_taken_away,
}

fn who_waits_goes_on_when_the_last_has_finished(stage: &Stage) {
    let set = stage.run(&["latch", "set", "built", "2"]);
    assert_eq!((set.code, &*set.out, &*set.err), (0, "", ""));
    let mut waiting = stage.start(&["latch", "wait", "built"]);
    stage.is_awaited_for("built");
    let down = stage.run(&["latch", "down", "built"]);
    assert_eq!((down.code, &*down.out), (0, "1\n"), "{down:?}");
    assert!(waiting.is_running());
    let down = stage.run(&["latch", "down", "built"]);
    assert_eq!((down.code, &*down.out), (0, "0\n"), "{down:?}");
    assert_eq!(waiting.end().code, 0);
}

fn a_latch_is_set_once(stage: &Stage) {
    assert_eq!(stage.run(&["latch", "set", "built", "3"]).code, 0);
    let again = stage.run(&["latch", "set", "built", "5"]);
    assert_eq!(again.code, 1);
    let message = "distlock: `built` is set already, with 3 left\n";
    assert_eq!(again.err, message);
    for _ in 0..3 {
        assert_eq!(stage.run(&["latch", "down", "built"]).code, 0);
    }
    assert_eq!(stage.run(&["latch", "set", "built", "5"]).code, 0);
    assert_eq!(stage.run(&["latch", "set", "other", "0"]).code, 64);
}

fn a_latch_that_nobody_has_set_is_open(stage: &Stage) {
    assert_eq!(stage.run(&["latch", "wait", "built"]).code, 0);
    assert_eq!(
        stage.run(&["latch", "wait", "--wait", "0", "built"]).code,
        0
    );
    let down = stage.run(&["latch", "down", "built"]);
    assert_eq!((down.code, &*down.out), (0, "0\n"));
}

fn a_wait_that_is_over_is_75(stage: &Stage) {
    assert_eq!(stage.run(&["latch", "set", "built", "2"]).code, 0);
    let over = stage.run(&["latch", "wait", "--wait", "0", "built"]);
    assert_eq!(
        (over.code, &*over.err),
        (75, "distlock: `built` has 2 left\n")
    );
    let over = stage.run(&["latch", "wait", "--wait", "2s", "built"]);
    let message = "distlock: `built` has 2 left (waited 2s)\n";
    assert_eq!((over.code, &*over.err), (75, message));
    let other = ["latch", "wait", "--wait", "0", "--busy-code", "3", "built"];
    assert_eq!(stage.run(&other).code, 3);
    // It would be taken for open.
    let silent = ["latch", "wait", "--wait", "0", "--busy-code", "0", "built"];
    assert_eq!(stage.run(&silent).code, 64);
}

fn one_that_nobody_counts_down_any_more_is_seen_and_taken_away(stage: &Stage) {
    assert_eq!(stage.run(&["latch", "set", "built", "2"]).code, 0);
    assert_eq!(stage.run(&["latch", "show", "built"]).out, "2\n");
    let waiting = stage.start(&["latch", "wait", "built"]);
    stage.is_awaited_for("built");
    assert_eq!(stage.run(&["latch", "delete", "built"]).code, 0);
    assert_eq!(waiting.end().code, 0);
    let again = stage.run(&["latch", "delete", "built"]);
    assert_eq!(
        (again.code, &*again.err),
        (1, "distlock: nobody has set `built`\n")
    );
    assert_eq!(stage.run(&["latch", "show", "built"]).out, "0\n");
}
