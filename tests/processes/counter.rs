//! Two processes that count in Redis by reading and then writing: the simplest use of a lock.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use distlock::Client;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use super::support::patient_connection;
use super::support::process::{self, say, url};
use super::{PATIENCE, Process, RedisServer};

#[test]
fn two_processes_that_count_under_the_lock_lose_nothing_and_without_it_they_do() {
    let server = RedisServer::start();

    let (total, turns) = race(&server, LOCKED);
    eprintln!("with the lock: {total} of {TOTAL}, {turns} turns");
    assert_eq!(total, TOTAL);
    assert!(turns >= 3, "they did not race, one came after the other");

    server.flushall();
    let (total, turns) = race(&server, UNLOCKED);
    eprintln!("without it: {total} of {TOTAL}, {turns} turns");
    assert!(total < TOTAL, "nothing was lost: the lock was not needed");
}

/// Returns the final count, and how often the lock moved from one process to the other.
fn race(server: &RedisServer, role: &str) -> (u64, usize) {
    let mut workers = [
        Process::start(role, &server.url()),
        Process::start(role, &server.url()),
    ];
    process::race(&mut workers);
    let log: Vec<u32> = server.query(&["LRANGE", LOG, "0", "-1"]);
    assert_eq!(log.len() as u64, TOTAL, "everybody wrote as often as told");
    let turns = log.windows(2).filter(|two| two[0] != two[1]).count();
    (server.query(&["GET", COUNTER]), turns)
}

/// The worker's part.
pub(crate) async fn count(orders: Receiver<String>, locked: bool) {
    // The limit of local hand-offs is low, so that the lock keeps moving from one process to the other.
    let client = Client::builder(&url()).handoff_limit(3);
    let client = client.command_timeout(PATIENCE).connect_timeout(PATIENCE);
    let client = client.connect().await;
    let client = client.expect("the server is up");
    let mut counting = JoinSet::new();
    let mut connections = Vec::new();
    for _ in 0..TASKS {
        connections.push(patient_connection(&url()).await);
    }
    say("ready");
    orders.recv().expect("the test says when");
    both_have_begun(&mut connections[0]).await;
    for mut connection in connections {
        let lock = client.lock("counting");
        counting.spawn(async move {
            for _ in 0..EACH {
                let guard = if locked {
                    Some(lock.acquire().await.expect("the server is up"))
                } else {
                    None
                };
                increment(&mut connection).await;
                if let Some(guard) = guard {
                    guard.release().await.expect("it is ours");
                }
            }
        });
    }
    counting.join_all().await;
    client.close().await.expect("the server is up");
    say("done");
}

/// Waits until both have begun: they are told one after the other, and on a busy machine the first might be done before the second receives
/// its order.
async fn both_have_begun(connection: &mut MultiplexedConnection) {
    let begun = redis::cmd("INCR").arg(BEGUN).exec_async(connection).await;
    begun.expect("the server is up");
    loop {
        let begun = redis::cmd("GET").arg(BEGUN).query_async(connection).await;
        let begun: u32 = begun.expect("the server is up");
        if begun == 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Not `INCR`: a write between the two halves is overwritten, which the test must detect.
async fn increment(connection: &mut MultiplexedConnection) {
    let read: redis::RedisResult<Option<u64>> =
        redis::cmd("GET").arg(COUNTER).query_async(connection).await;
    let next = read.expect("the server is up").unwrap_or(0) + 1;
    redis::pipe()
        .set(COUNTER, next)
        .rpush(LOG, std::process::id())
        .exec_async(connection)
        .await
        .expect("the server is up");
}

pub(crate) const LOCKED: &str = "count with the lock";
pub(crate) const UNLOCKED: &str = "count without it";
const BEGUN: &str = "begun";
const COUNTER: &str = "counter";
const LOG: &str = "log";
const TASKS: u64 = 5;
const EACH: u64 = 100;
const TOTAL: u64 = 2 * TASKS * EACH;
