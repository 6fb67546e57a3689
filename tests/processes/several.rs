//! Two processes that acquire the same three locks, given in opposite orders.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use distlock::MultiLock;

use super::support::patient_connection;
use super::support::process::{say, url};
use super::{Process, RedisServer, connect};

pub(crate) const ROLE: &str = "several";

/// A busy machine may stand still for seconds; processes in a deadlock stand still for ever.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The number of rounds between two progress reports.
const WORD_EVERY: usize = 250;

#[test]
fn two_processes_that_acquire_three_locks_in_opposite_orders_make_steady_progress() {
    race(500);
}

#[test]
#[ignore = "the long form: a minute"]
fn two_processes_that_acquire_three_locks_in_opposite_orders_ten_thousand_times() {
    race(10_000);
}

fn race(rounds: usize) {
    let server = RedisServer::start();
    let role = |order: &str| format!("{ROLE}/{order}/{rounds}");
    let mut workers = [
        Process::start(&role("abc"), &server.url()),
        Process::start(&role("cba"), &server.url()),
    ];
    for worker in &mut workers {
        worker.expect_line("ready");
    }
    for worker in &mut workers {
        worker.send_line("go");
    }
    // The timeout applies to each report: all rounds of the long form take longer than that together.
    for _ in 0..rounds / WORD_EVERY {
        for worker in &workers {
            worker.expect_line("so far");
        }
    }
    for worker in &mut workers {
        worker.expect_line("done");
        worker.ended_well();
    }
    let counted: usize = server.query(&["GET", "counter"]);
    assert_eq!(counted, rounds * 2, "two were inside at the same time");
    assert_eq!(server.keys(), ["counter"], "something is left");
}

/// The worker's part: `several/abc/500`.
pub(crate) async fn play(role: &str, orders: Receiver<String>) {
    let mut words = role.split('/').skip(1);
    let (order, rounds) = (words.next().unwrap(), words.next().unwrap());
    let client = connect(&url()).await;
    let mut redis = patient_connection(&url()).await;
    let lock = MultiLock::new(
        order
            .chars()
            .map(|name| client.lock(name.to_string()).into()),
    );
    say("ready");
    orders.recv().expect("the test says when");
    let mut longest = Duration::ZERO;
    let rounds: usize = rounds.parse().expect("a number");
    for round in 1..=rounds {
        let begun = Instant::now();
        let guard = lock.acquire().await.expect("the server is up");
        // Not `INCR`: a write between the two halves is overwritten, which the test must detect.
        let read = redis::cmd("GET")
            .arg("counter")
            .query_async(&mut redis)
            .await;
        let count: Option<u64> = read.expect("the server is up");
        let write = redis::cmd("SET")
            .arg("counter")
            .arg(count.unwrap_or(0) + 1)
            .query_async(&mut redis)
            .await;
        let () = write.expect("the server is up");
        guard.release().await.expect("they are ours");
        longest = longest.max(begun.elapsed());
        if round % WORD_EVERY == 0 {
            say("so far");
        }
    }
    assert!(longest < LONGEST_PAUSE, "stood still for {longest:?}");
    client.close().await.expect("the server is up");
    say("done");
}
