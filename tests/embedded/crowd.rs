//! Many processes at one file, some of which are killed.

use std::fs;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use distlock::Error;
use distlock::blocking::Client;

use super::support::process::{Process, race, say, url};
use super::{PATIENCE, Place};

pub(crate) const ROLE: &str = "count";
pub(crate) const COME: &str = "come";
const TURNS: u32 = 50;

/// A number in a file, read and written under the lock. Whoever is killed between the two has not counted.
#[test]
fn a_crowd_of_which_some_are_killed_counts_right() {
    let place = Place::new();
    let number = place.folder.path().join("number");
    fs::write(&number, "0").expect("there is room");
    let mut workers: Vec<Process> = (0..6).map(|_| Process::start(ROLE, &place.url())).collect();
    let mut said = 0;
    for (index, worker) in workers.iter_mut().enumerate() {
        worker.hear("counted");
        // Half of them are killed while they are at it.
        if index % 2 == 1 {
            worker.kill();
        }
    }
    for worker in workers.iter_mut().step_by(2) {
        said += worker.hear("done").parse::<u64>().expect("a number");
        worker.ended_well();
    }
    assert_eq!(said, u64::from(3 * TURNS));
    let counted: u64 = read(&number);
    // Each that was killed has counted between once and as often as the others.
    eprintln!("{counted} in all, {said} by those who were spared");
    assert!(counted > said && counted <= 2 * said, "{counted}");
    let log = fs::read_to_string(place.folder.path().join("log")).expect("they wrote it");
    let numbers: Vec<u64> = log
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    // One who was killed may have written the number and not the line: then one is missing, never twice.
    assert!(
        numbers.windows(2).all(|two| two[0] < two[1]),
        "a number twice: {numbers:?}"
    );
    let lost = counted - numbers.len() as u64;
    assert!(lost <= 3, "{lost} lines are missing");
}

/// They all find no file, and one of them makes it.
#[test]
fn a_file_may_be_made_by_many_at_once() {
    for _ in 0..5 {
        let place = Place::new();
        let mut workers: Vec<Process> =
            (0..8).map(|_| Process::start(COME, &place.url())).collect();
        race(&mut workers);
    }
}

/// The worker's part.
pub(crate) fn come(orders: &Receiver<String>) -> Result<(), Error> {
    say("ready");
    orders.recv().expect("the test is there");
    let client = Client::connect_with(patient())?;
    client.lock("a").acquire()?.release()?;
    say("done");
    client.close()
}

fn patient() -> distlock::ClientBuilder {
    let builder = distlock::Client::builder(&url());
    builder
        .command_timeout(PATIENCE / 2)
        .connect_timeout(PATIENCE / 2)
}

/// The worker's part.
pub(crate) fn count() -> Result<(), Error> {
    let client = Client::connect_with(patient())?;
    let folder = url();
    let folder = folder
        .trim_start_matches("sqlite:")
        .trim_end_matches("/locks.db");
    let (number, log) = (format!("{folder}/number"), format!("{folder}/log"));
    let begun = Instant::now();
    for turn in 0..TURNS {
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
        if turn == 10 {
            say("counted");
        }
    }
    say(&format!("done {TURNS}"));
    eprintln!("{TURNS} turns in {:?}", begun.elapsed());
    client.close()
}

fn read(number: &std::path::Path) -> u64 {
    let text = fs::read_to_string(number).expect("it is there");
    text.trim().parse().expect("a number")
}
