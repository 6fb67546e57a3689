//! Tests of `latch set`, `down` and `wait`.

use crate::stage::Stage;

on_every_store! {
    waiters_continue_when_the_last_command_has_finished,
    a_latch_is_set_once,
    an_unset_latch_is_open,
    a_timed_out_wait_exits_with_75,
    an_abandoned_latch_is_shown_and_deleted,
}

fn waiters_continue_when_the_last_command_has_finished(stage: &Stage) {
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
    assert_eq!(again.code, 64);
    // In a file no other state is a number.
    let state = stage.lasts(
        "`built` is the number 3: a latch, or another program's counter",
        "`built` is a latch with a count of 3",
    );
    let message =
        format!("distlock: {state}; the input is not a terminal: use `--force` to replace it\n");
    assert_eq!(again.err, message);
    let forced = stage.run(&["latch", "set", "--force", "built", "2"]);
    assert_eq!((forced.code, &*forced.err), (0, ""));
    assert_eq!(stage.run(&["latch", "show", "built"]).out, "2\n");
    for _ in 0..2 {
        assert_eq!(stage.run(&["latch", "down", "built"]).code, 0);
    }
    assert_eq!(stage.run(&["latch", "set", "built", "5"]).code, 0);
    assert_eq!(stage.run(&["latch", "set", "other", "0"]).code, 64);
}

fn an_unset_latch_is_open(stage: &Stage) {
    assert_eq!(stage.run(&["latch", "wait", "built"]).code, 0);
    assert_eq!(
        stage.run(&["latch", "wait", "--wait", "0", "built"]).code,
        0
    );
    let down = stage.run(&["latch", "down", "built"]);
    assert_eq!((down.code, &*down.out), (0, "0\n"));
}

fn a_timed_out_wait_exits_with_75(stage: &Stage) {
    assert_eq!(stage.run(&["latch", "set", "built", "2"]).code, 0);
    let over = stage.run(&["latch", "wait", "--wait", "0", "built"]);
    assert_eq!(
        (over.code, &*over.err),
        (75, "distlock: `built` is not open: its count is 2\n")
    );
    let over = stage.run(&["latch", "wait", "--wait", "2s", "built"]);
    let message = "distlock: `built` is not open: its count is 2 (waited 2s)\n";
    assert_eq!((over.code, &*over.err), (75, message));
    let other = ["latch", "wait", "--wait", "0", "--busy-code", "3", "built"];
    assert_eq!(stage.run(&other).code, 3);
    // The exit code would be taken for that of an open latch.
    let silent = ["latch", "wait", "--wait", "0", "--busy-code", "0", "built"];
    assert_eq!(stage.run(&silent).code, 64);
}

fn an_abandoned_latch_is_shown_and_deleted(stage: &Stage) {
    assert_eq!(stage.run(&["latch", "set", "built", "2"]).code, 0);
    assert_eq!(stage.run(&["latch", "show", "built"]).out, "2\n");
    let waiting = stage.start(&["latch", "wait", "built"]);
    stage.is_awaited_for("built");
    let refused = stage.run(&["latch", "delete", "built"]);
    let state = stage.lasts(
        "`built` is the number 2: a latch, or another program's counter",
        "`built` is a latch with a count of 2",
    );
    let message =
        format!("distlock: {state}; the input is not a terminal: use `--force` to delete it\n");
    assert_eq!((refused.code, refused.err), (64, message));
    assert_eq!(stage.run(&["latch", "show", "built"]).out, "2\n");
    assert_eq!(stage.run(&["latch", "delete", "--force", "built"]).code, 0);
    assert_eq!(waiting.end().code, 0);
    let again = stage.run(&["latch", "delete", "--force", "built"]);
    assert_eq!(
        (again.code, &*again.err),
        (1, "distlock: no latch `built` is set\n")
    );
    assert_eq!(stage.run(&["latch", "show", "built"]).out, "0\n");
}

const NO_LATCH: &str = "distlock: `built` is not a latch (a number of 0 or less); it was left as it is; choose another name\n";

#[test]
fn a_number_not_above_zero_is_reported_neither_as_latch_nor_as_missing() {
    let stage = Stage::redis();
    for number in ["0", "-3"] {
        stage.server().cmd(&["SET", "built", number]);
        let set = stage.run(&["latch", "set", "built", "2"]);
        assert_eq!((set.code, &*set.err), (69, NO_LATCH));
    }
    // `permits delete` cannot tell the number 0 from no number, either.
    for (number, code, message) in [
        ("-3", 69, NO_LATCH),
        (
            "0",
            1,
            "distlock: no latch `built` is set, or it is the number 0: another program's counter\n",
        ),
    ] {
        stage.server().cmd(&["SET", "built", number]);
        let delete = stage.run(&["latch", "delete", "built"]);
        assert_eq!((delete.code, &*delete.err), (code, message));
        let left: String = stage.server().query(&["GET", "built"]);
        assert_eq!(left, number);
    }
}
