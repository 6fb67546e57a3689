//! Many processes at one file, some of which are killed.

use std::fs;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use distlock::Error;
use distlock::blocking::Client;

use super::support::SeededRng;
use super::support::process::{Process, race, say, url};
use super::{StoreFile, patient};

pub(crate) const ROLE: &str = "count";
pub(crate) const COME: &str = "come";
const KILLS: usize = 24;
const AT_ONCE: usize = 4;

/// The workers read and write a number in a file under the lock, and report each count. A worker that is killed on the way may have counted
/// without reporting it; no other count is lost.
#[test]
fn many_processes_killed_at_any_moment_count_exactly() {
    let mut random = SeededRng::from_env_or(6);
    let place = StoreFile::new();
    let number = place.folder.path().join("number");
    fs::write(&number, "0").expect("there is room");
    let spared: Vec<Process> = (0..2).map(|_| Process::start(ROLE, &place.url())).collect();
    let mut said = 0;
    for _ in 0..KILLS / AT_ONCE {
        let mut victims: Vec<Process> = (0..AT_ONCE)
            .map(|_| Process::start(ROLE, &place.url()))
            .collect();
        for (nth, victim) in victims.iter_mut().enumerate() {
            // Every second victim has counted once before, however slow the machine is.
            if nth % 2 == 1 {
                victim.expect_line("");
                said += 1;
            }
            // The kill hits it before it connects, while it waits, while it holds the lock, or between two holds.
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            victim.kill();
        }
        for victim in &mut victims {
            said += victim.last_words().len();
        }
    }
    // Only the spared workers are left by now, and they must make progress.
    for mut worker in spared {
        worker.expect_line("");
        worker.send_line("enough");
        said += 1 + worker.last_words().len();
        worker.ended_well();
    }
    let counted: usize = read(&number).try_into().expect("it is small");
    eprintln!("{counted} in all, {said} said");
    assert!(
        (said..=said + KILLS).contains(&counted),
        "{counted} counted, {said} said"
    );
    let log = fs::read_to_string(place.folder.path().join("log")).expect("they wrote it");
    let numbers: Vec<u64> = log
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    // A worker that was killed may have written the number and not the line: then a number is missing, but none appears twice.
    assert!(
        numbers.windows(2).all(|two| two[0] < two[1]),
        "a number twice: {numbers:?}"
    );
    assert!(numbers.len() + KILLS >= counted, "lines are missing");
}

/// None of the processes finds a file, and one of them makes it.
#[test]
fn a_file_may_be_created_by_many_processes_at_once() {
    for _ in 0..5 {
        let place = StoreFile::new();
        let mut workers: Vec<Process> =
            (0..8).map(|_| Process::start(COME, &place.url())).collect();
        race(&mut workers);
    }
}

/// The worker's part.
pub(crate) fn come(orders: &Receiver<String>) -> Result<(), Error> {
    say("ready");
    orders.recv().expect("the test is there");
    let client = Client::connect_with(patient(&url()))?;
    client.lock("a").acquire()?.release()?;
    say("done");
    client.close()
}

/// The worker's part: it counts until it is told to stop.
pub(crate) fn count(orders: &Receiver<String>) -> Result<(), Error> {
    let client = Client::connect_with(patient(&url()))?;
    let folder = url();
    let folder = folder
        .trim_start_matches("sqlite:")
        .trim_end_matches("/locks.db");
    let (number, log) = (format!("{folder}/number"), format!("{folder}/log"));
    while orders.try_recv().is_err() {
        let guard = client.lock("number").acquire()?;
        let next: u64 = read(number.as_ref()) + 1;
        std::thread::sleep(Duration::from_micros(200));
        fs::write(format!("{number}.new"), next.to_string()).expect("there is room");
        fs::rename(format!("{number}.new"), &number).expect("there is room");
        let file = fs::OpenOptions::new().append(true).create(true).open(&log);
        std::io::Write::write_all(
            &mut file.expect("there is room"),
            format!("{next}\n").as_bytes(),
        )
        .expect("there is room");
        guard.release()?;
        say(&next.to_string());
    }
    client.close()
}

fn read(number: &std::path::Path) -> u64 {
    let text = fs::read_to_string(number).expect("it is there");
    text.trim().parse().expect("a number")
}
