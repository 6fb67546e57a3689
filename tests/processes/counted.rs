//! Processes that acquire and release permits of a counting semaphore, and are killed at any moment.

use std::time::Duration;

use tokio::task::JoinSet;

use super::support::process::{say, url};
use super::support::{SeededRng, patient_connection};
use super::{PATIENCE, Process, RedisServer, connect, eventually};

pub(crate) const ROLE: &str = "counted";

/// The total number of permits.
const ALL: i64 = 12;
/// The number of tasks of one process.
const TASKS: u64 = 6;

/// The permits of crashed processes stay in use for ever, and only those: no other permit is lost, and none is made up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_conserved_when_processes_are_killed_at_any_moment() {
    let server = RedisServer::start();
    let mut dice = SeededRng::from_env_or(0x7065_726d_6974_0002);
    let client = connect(&server.url()).await;
    let slots = client.counting_semaphore("slots");
    for round in 0..3 {
        server.flushall();
        assert!(slots.try_set(u32::try_from(ALL).unwrap()).await.unwrap());
        let mut workers: Vec<_> = (0..3)
            .map(|_| Process::start(ROLE, &server.url()))
            .collect();
        for worker in &workers {
            worker.expect_line("spins");
        }
        for worker in &mut workers {
            for _ in 0..dice.below(20) {
                let there: i64 = server.query(&["GET", "slots"]);
                assert!((0..=ALL).contains(&there), "round {round}: {there}");
                tokio::time::sleep(Duration::from_millis(dice.below(3))).await;
            }
            worker.kill();
        }
        // The permits that they may have had, and the permits that they had for certain.
        let sum = |key: &str| -> i64 {
            let sum: Option<i64> = server.query(&["GET", key]);
            sum.unwrap_or(0)
        };
        let (most, least) = (ALL - sum("certain"), ALL - sum("perhaps"));
        eventually(PATIENCE, "the last of their calls have come", async || {
            let there: i64 = server.query(&["GET", "slots"]);
            (least..=most).contains(&there)
        })
        .await;
        // Crashed waiters in the queue are skipped, and the remaining permits are available.
        let there = slots.available().await.unwrap();
        eprintln!("round {round}: {there} are left, {least} to {most}");
        assert!((0..=ALL).contains(&there), "{there}");
        let rest = u32::try_from(there).unwrap();
        assert!(slots.acquire_timeout(rest, PATIENCE).await.unwrap());
        assert_eq!(slots.available().await.unwrap(), 0);
    }
}

/// The worker's part: it acquires and releases until it is killed, and keeps a record that is never behind.
pub(crate) async fn spin() {
    let client = connect(&url()).await;
    let redis = patient_connection(&url()).await;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let slots = client.counting_semaphore("slots");
        let mut redis = redis.clone();
        tasks.spawn(async move {
            for round in 0.. {
                let many = 1 + (task + round) % 3;
                let book = async |redis: &mut redis::aio::MultiplexedConnection, what: &str, by| {
                    let entry = redis::cmd("INCRBY")
                        .arg(what)
                        .arg(by)
                        .query_async(redis)
                        .await;
                    let _: i64 = entry.expect("the server is up");
                };
                let by = i64::try_from(many).expect("a few");
                let many = u32::try_from(many).expect("a few");
                book(&mut redis, "perhaps", by).await;
                slots.acquire(many).await.expect("the server is up");
                book(&mut redis, "certain", by).await;
                book(&mut redis, "certain", -by).await;
                slots.release(many).await.expect("the server is up");
                book(&mut redis, "perhaps", -by).await;
                if task == 0 && round == 20 {
                    say("spins");
                }
            }
        });
    }
    tasks.join_all().await;
}
