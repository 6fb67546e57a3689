//! The same order for waiters on a file.

use std::collections::HashSet;
use std::fs;

use tempfile::TempDir;

use super::support::eventually;
use super::support::process::Process;
use super::worker::{ENOUGH, STAND};
use super::{NAME, PATIENCE, connect, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_several_processes_on_one_file_keep_their_order_when_one_is_killed() {
    let folder = TempDir::with_prefix("distlock-fair-").expect("there is room");
    let file = folder.path().join("locks.db");
    let url = format!("sqlite:{}", file.display());
    let client = connect(&url).await;
    let held = take(&client).await;
    let mut crowd: Vec<Process> = (0..PROCESSES)
        .map(|_| Process::start(STAND, &url))
        .collect();
    for process in &crowd {
        process.expect_line("ready");
    }
    // The waiters are added one at a time, so that their order of arrival is certain.
    let mut came: Vec<String> = Vec::new();
    for number in 0..PROCESSES * EACH {
        crowd[number % PROCESSES].send_line("1");
        eventually(PATIENCE, "it stands in line", async || {
            let seen = client.admin().inspect(NAME).await;
            let line = seen.expect("the file is there").expect("held").waiting;
            came.extend(line.into_iter().find(|owner| !came.contains(owner)));
            came.len() > number
        })
        .await;
    }
    for process in &mut crowd {
        process.send_line(ENOUGH);
    }

    let mut killed = crowd.pop().expect("there are some");
    killed.kill();
    held.release().await.expect("it is ours");
    for process in &mut crowd {
        assert_eq!(process.expect_line("done"), EACH.to_string());
        process.ended_well();
    }
    let log = fs::read_to_string(format!("{}.log", file.display())).expect("they wrote it");
    let turns: Vec<&str> = log.lines().collect();
    let spared: HashSet<&str> = turns.iter().copied().collect();
    came.retain(|owner| spared.contains(&**owner));
    assert_eq!(turns, came, "not in the order in which they came");
    assert_eq!(turns.len(), (PROCESSES - 1) * EACH);
    client.close().await.expect("the file is there");
    let left = rusqlite::Connection::open(&file).expect("the file is there");
    let left: u32 = left
        .query_row("SELECT count(*) FROM line", [], |row| row.get(0))
        .expect("it has a line");
    assert_eq!(left, 0, "somebody still stands in line");
}

const PROCESSES: usize = 4;
/// All of them fit into one poll.
const EACH: usize = 20;
