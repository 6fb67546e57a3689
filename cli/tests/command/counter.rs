//! Many processes count in one file: read, add, write.

use std::process::Child;

use crate::stage::Stage;

const PROCESSES: usize = 20;
const TURNS: usize = 20;

on_every_store! {
    twenty_processes_lose_no_count,
}

fn twenty_processes_lose_no_count(stage: &Stage) {
    let file = stage.file("count");
    std::fs::write(&file, "0\n").expect("the folder is ours");
    // Between reading and writing there is time for all the others: without a lock, hardly any count survives.
    let add = format!("read n < {file}; sleep 0.01; echo $((n + 1)) > {file}");
    let turns = format!(
        "for turn in $(seq {TURNS}); do {} run count -- sh -c '{add}' || exit 1; done",
        env!("CARGO_BIN_EXE_distlock")
    );
    let mut processes: Vec<Child> = Vec::new();
    for _ in 0..PROCESSES {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &turns]).env("DISTLOCK_URL", stage.url());
        shell.stdin(std::process::Stdio::null());
        processes.push(shell.spawn().expect("sh can be started"));
    }
    for mut process in processes {
        assert!(process.wait().expect("it is our child").success());
    }
    assert_eq!(stage.read("count"), format!("{}\n", PROCESSES * TURNS));
}
