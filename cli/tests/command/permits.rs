//! `permits set`, `show` and `delete`.

use crate::stage::Stage;

on_every_store! {
    a_name_that_was_a_semaphores_is_free_again_when_its_number_is_deleted,
    how_many_there_are_is_said_and_seen_without_taking_one,
    permits_that_are_out_are_taken_away_by_force_only,
}

fn a_name_that_was_a_semaphores_is_free_again_when_its_number_is_deleted(stage: &Stage) {
    let ran = stage.run(&["run", "--permits", "3", "x", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let plain = ["run", "--wait", "2s", "x", "--", "true"];
    let refused = stage.run(&plain);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(
        refused.err.contains("distlock permits delete"),
        "{refused:?}"
    );
    let deleted = stage.run(&["permits", "delete", "x"]);
    assert_eq!((deleted.code, &*deleted.out, &*deleted.err), (0, "", ""));
    assert_eq!(stage.run(&plain).code, 0);
    let again = stage.run(&["permits", "delete", "x"]);
    let message = "distlock: nobody has said how many permits `x` has\n";
    assert_eq!((again.code, &*again.err), (1, message));
}

fn how_many_there_are_is_said_and_seen_without_taking_one(stage: &Stage) {
    let none = stage.run(&["permits", "show", "x"]);
    assert_eq!(
        (none.code, &*none.err),
        (1, "distlock: nobody has said how many permits `x` has\n")
    );
    let set = stage.run(&["permits", "set", "x", "2"]);
    assert_eq!((set.code, &*set.out, &*set.err), (0, "", ""));
    let shown = stage.run(&["permits", "show", "x"]);
    assert_eq!((shown.code, &*shown.out), (0, "0 out, 2 to be had\n"));
    let _held = stage.hold_with(&["--permits", "2", "x"]);
    assert_eq!(stage.run(&["permits", "set", "x", "5"]).code, 0);
    let shown = stage.run(&["permits", "show", "x"]);
    assert_eq!((shown.code, &*shown.out), (0, "1 out, 4 to be had\n"));
}

fn permits_that_are_out_are_taken_away_by_force_only(stage: &Stage) {
    let held = stage.hold_with(&["--permits", "2", "--lease", "6s", "x"]);
    let kept = stage.run(&["permits", "delete", "x"]);
    let message = "distlock: 1 of `x` are out; `--force` takes them away\n";
    assert_eq!((kept.code, &*kept.err), (1, message));
    assert_eq!(stage.run(&["permits", "delete", "--force", "x"]).code, 0);
    assert_eq!(held.end().code, 76);
}

#[test]
fn permits_that_are_out_are_seen_and_kept_though_somebody_has_deleted_their_number() {
    let stage = Stage::redis();
    let held = stage.hold_with(&["--permits", "2", "--lease", "6s", "x"]);
    stage.server().cmd(&["DEL", "x"]);
    let shown = stage.run(&["permits", "show", "x"]);
    assert_eq!((shown.code, &*shown.out), (0, "1 out, 0 to be had\n"));
    let kept = stage.run(&["permits", "delete", "x"]);
    let message = "distlock: 1 of `x` are out; `--force` takes them away\n";
    assert_eq!((kept.code, &*kept.err), (1, message));
    let forced = stage.run(&["permits", "delete", "--force", "x"]);
    assert_eq!((forced.code, &*forced.err), (0, ""));
    assert_eq!(held.end().code, 76);
}
