//! Tests of `permits set`, `show` and `delete`.

use crate::stage::Stage;

on_every_store! {
    the_name_of_a_semaphore_is_free_again_when_its_number_is_deleted,
    the_number_of_permits_is_set_and_shown_without_acquiring_one,
    permits_in_use_are_removed_by_force_only,
    a_different_number_of_permits_is_refused,
    a_run_that_is_refused_for_one_name_creates_no_other,
    concurrent_first_runs_create_one_semaphore,
}

fn the_name_of_a_semaphore_is_free_again_when_its_number_is_deleted(stage: &Stage) {
    let ran = stage.run(&["run", "--permits", "3", "x", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let plain = ["run", "--wait", "2s", "x", "--", "true"];
    let refused = stage.run(&plain);
    assert_eq!(refused.code, 69, "{refused:?}");
    let advice = "such as `lock:x`, or the option for its kind if it is a lock of another kind\n";
    assert!(refused.err.ends_with(advice), "{refused:?}");
    let deleted = stage.run(&["permits", "delete", "--force", "x"]);
    assert_eq!((deleted.code, &*deleted.out, &*deleted.err), (0, "", ""));
    assert_eq!(stage.run(&plain).code, 0);
    let again = stage.run(&["permits", "delete", "x"]);
    let message = "distlock: no number of permits is set for `x`, or the number is 0\n";
    assert_eq!((again.code, &*again.err), (1, message));
}

fn the_number_of_permits_is_set_and_shown_without_acquiring_one(stage: &Stage) {
    let none = stage.run(&["permits", "show", "x"]);
    assert_eq!(
        (none.code, &*none.err),
        (
            1,
            "distlock: no number of permits is set for `x`, or the number is 0\n"
        )
    );
    let set = stage.run(&["permits", "set", "x", "2"]);
    assert_eq!((set.code, &*set.out, &*set.err), (0, "", ""));
    let shown = stage.run(&["permits", "show", "x"]);
    assert_eq!((shown.code, &*shown.out), (0, "0 in use, 2 available\n"));
    let _held = stage.hold_with(&["--permits", "2", "x"]);
    let again = stage.run(&["permits", "set", "x", "2"]);
    assert_eq!((again.code, &*again.err), (0, ""), "the same number");
    let refused = stage.run(&["permits", "set", "x", "5"]);
    let message = "distlock: permits of `x`: 2 in total, 1 in use; the input is not a terminal: use `--force` to replace the number\n";
    assert_eq!((refused.code, &*refused.err), (64, message));
    let forced = stage.run(&["permits", "set", "--force", "x", "5"]);
    assert_eq!((forced.code, &*forced.err), (0, ""));
    let shown = stage.run(&["permits", "show", "x"]);
    assert_eq!((shown.code, &*shown.out), (0, "1 in use, 4 available\n"));
}

fn permits_in_use_are_removed_by_force_only(stage: &Stage) {
    let held = stage.hold_with(&["--permits", "2", "--lease", "6s", "x"]);
    let kept = stage.run(&["permits", "delete", "x"]);
    let message = "distlock: permits of `x`: 2 in total, 1 in use; the input is not a terminal: use `--force` to delete it\n";
    assert_eq!((kept.code, &*kept.err), (64, message));
    assert_eq!(stage.run(&["permits", "delete", "--force", "x"]).code, 0);
    assert_eq!(held.end().code, 76);
}

#[test]
fn permits_in_use_are_shown_and_kept_after_their_number_was_deleted() {
    let stage = Stage::redis();
    let held = stage.hold_with(&["--permits", "2", "--lease", "6s", "x"]);
    stage.server().cmd(&["DEL", "x"]);
    let shown = stage.run(&["permits", "show", "x"]);
    assert_eq!((shown.code, &*shown.out), (0, "1 in use, 0 available\n"));
    let kept = stage.run(&["permits", "delete", "x"]);
    let message = "distlock: permits of `x`: 1 in total, 1 in use; the input is not a terminal: use `--force` to delete it\n";
    assert_eq!((kept.code, &*kept.err), (64, message));
    let forced = stage.run(&["permits", "delete", "--force", "x"]);
    assert_eq!((forced.code, &*forced.err), (0, ""));
    assert_eq!(held.end().code, 76);
}

fn a_different_number_of_permits_is_refused(stage: &Stage) {
    let _one = stage.hold_with(&["--permits", "2", "x"]);
    for total in ["1", "3"] {
        let words = ["run", "--permits", total, "--wait", "0", "x", "--", "true"];
        let refused = stage.run(&words);
        let message = format!(
            "distlock: `x` has 2 permits (1 available, 1 in use), not {total}; if it is a semaphore, `distlock \
             permits set x {total}` in the same store changes the number; if it is not, choose another name\n"
        );
        assert_eq!((refused.code, refused.err), (64, message));
    }
    let shown = stage.run(&["permits", "show", "x"]);
    assert_eq!(shown.out, "1 in use, 1 available\n");
}

fn a_run_that_is_refused_for_one_name_creates_no_other(stage: &Stage) {
    assert_eq!(stage.run(&["permits", "set", "b", "2"]).code, 0);
    let refused = stage.run(&["run", "--permits", "3", "a", "b", "--", "true"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.err.contains("`b` has 2 permits"), "{refused:?}");
    let shown = stage.run(&["permits", "show", "a"]);
    assert_eq!((shown.code, &*shown.out), (1, ""), "{shown:?}");
}

fn concurrent_first_runs_create_one_semaphore(stage: &Stage) {
    let words = ["run", "--permits", "2", "x", "--", "true"];
    let runs: Vec<_> = (0..6).map(|_| stage.start(&words)).collect();
    for run in runs {
        let ended = run.end();
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    let shown = stage.run(&["permits", "show", "x"]);
    assert_eq!(shown.out, "0 in use, 2 available\n");
}

#[test]
fn a_counter_of_an_application_is_unchanged_without_force() {
    let stage = Stage::redis();
    for number in ["7", "0", "-3"] {
        stage.server().cmd(&["SET", "counter", number]);
        for (words, code) in [
            (&["run", "--permits", "3", "counter", "--", "true"][..], 64),
            (
                &["acquire", "--permits", "3", "--lease", "1m", "counter"],
                64,
            ),
            (&["run", "counter", "--", "true"], 69),
            (&["run", "--read", "counter", "--", "true"], 69),
            (&["permits", "set", "counter", "3"], 64),
        ] {
            let ran = stage.run(words);
            assert_eq!(ran.code, code, "{number} {words:?} {ran:?}");
            assert!(!ran.err.contains("delete"), "{number} {words:?} {ran:?}");
        }
        for words in [
            &["permits", "delete", "counter"][..],
            &["latch", "set", "counter", "3"],
            &["latch", "delete", "counter"],
            &["release", "--force", "counter"],
        ] {
            let ran = stage.run(words);
            assert_ne!(ran.code, 0, "{number} {words:?} {ran:?}");
        }
        let left: String = stage.server().query(&["GET", "counter"]);
        assert_eq!(left, number);
    }
}
