//! Tests in which many processes count in one file: read, add, write.

use std::process::{Child, Command, Stdio};

use crate::stage::Stage;

const PROCESSES: usize = 20;
const TURNS: usize = 20;

on_every_store! {
    twenty_processes_with_a_lock_lose_no_count,
}

fn twenty_processes_with_a_lock_lose_no_count(stage: &Stage) {
    let lock = format!("{} run count --", env!("CARGO_BIN_EXE_distlock"));
    assert_eq!(count(stage, &lock, TURNS), PROCESSES * TURNS);
}

/// The control run: without it, the test above would show nothing.
#[test]
fn processes_without_a_lock_lose_counts() {
    let counted = count(&Stage::sqlite(), "", TURNS / 4);
    assert!(counted < PROCESSES * TURNS / 4, "{counted}");
}

/// Returns the number in the file at the end.
fn count(stage: &Stage, lock: &str, turns: usize) -> usize {
    let file = stage.file("count");
    std::fs::write(&file, "0\n").expect("the folder is ours");
    // The pause between reading and writing is time for all the other processes.
    let add = format!("read n < {file}; sleep 0.002; echo $((n + 1)) > {file}");
    // A turn is repeated if the store has not replied in time, as happens on a machine that stands still: nothing was done then.
    let turn = format!(
        "until {lock} sh -c '{add}'; do [ $? = 69 ] && [ $late -lt 200 ] || exit 1; late=$((late + 1)); done"
    );
    let turns = format!("late=0; for turn in $(seq {turns}); do {turn}; done");
    let mut processes: Vec<Child> = Vec::new();
    for _ in 0..PROCESSES {
        let mut shell = Command::new("sh");
        shell.args(["-c", &turns]).env("DISTLOCK_URL", stage.url());
        shell.stdin(Stdio::null());
        processes.push(shell.spawn().expect("sh can be started"));
    }
    for mut process in processes {
        assert!(process.wait().expect("it is our child").success());
    }
    // Without a lock, the end of a longer number from another process may be left.
    let count = stage.read("count");
    let count = count.lines().next().expect("they wrote to it");
    count.parse().expect("a number")
}
