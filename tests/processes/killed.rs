//! A holder that is killed without releasing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokio::task::JoinSet;

use super::support::SeededRng;
use super::support::process::{say, url};
use super::{LEASE, PATIENCE, Process, RedisServer, connect, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_killed_with_kill_9_frees_its_locks_when_its_lease_ends() {
    let server = RedisServer::start();
    let mut holder = Process::start(ROLE, &server.url());
    let owners = holder.expect_line("holds");
    let client = connect(&server.url()).await;
    let mut waiting = JoinSet::new();
    for name in NAMES {
        let busy = client.lock(name).try_acquire().await.unwrap();
        assert!(busy.is_none(), "the worker holds it");
        waiting.spawn(client.lock(name).acquire());
    }
    // All of them are waiting, and the leases are renewed; otherwise the kill would prove nothing.
    eventually(PATIENCE, "everybody listens", async || {
        server.pubsub_channels().len() == NAMES.len()
    })
    .await;
    for name in NAMES {
        let mut before = server.pttl(name);
        eventually(PATIENCE, "it is renewed", async || {
            let left = server.pttl(name);
            std::mem::replace(&mut before, left) < left
        })
        .await;
        let holders = server.hgetall(name);
        assert!(holders.keys().all(|owner| owners.contains(owner)));
    }

    holder.kill();
    let ended = tokio::time::timeout(PATIENCE, waiting.join_all()).await;
    for guard in ended.expect("the leases end") {
        let guard = guard.unwrap();
        assert!(guard.is_held() && !owners.contains(&guard.owner()));
    }
}

/// The process is killed at any moment while a crowd's calls are in flight, in batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_killed_with_kill_9_leave_nothing_that_outlives_its_lease() {
    let server = RedisServer::start();
    let mut dice = SeededRng::from_env_or(0x5eed_c0de);
    let mut workers: Vec<_> = (0..3)
        .map(|_| Process::start(CROWD, &server.url()))
        .collect();
    for worker in &workers {
        worker.expect_line("spins");
    }
    for worker in &mut workers {
        tokio::time::sleep(Duration::from_millis(dice.below(40))).await;
        worker.kill();
    }
    let held = server.keys();
    eprintln!("{} keys were left", held.len());
    for key in &held {
        assert_ne!(server.pttl(key), -1, "`{key}` has no end");
    }
    let few = server.commandstats("evalsha") < server.commandstats("hset");
    assert!(few, "they do not travel together");
    eventually(PATIENCE, "they are free again", async || {
        let left = server.keys();
        left.iter().all(|key| key.starts_with("distlock_undone:"))
    })
    .await;
    let client = connect(&server.url()).await;
    for number in 0..CALLERS {
        let free = client.lock(format!("crowd-{number}")).try_acquire().await;
        assert!(free.unwrap().is_some(), "nobody is left who could have it");
    }
}

/// The worker's part: many callers on a few names.
pub(crate) async fn spin() {
    let client = connect(&url()).await;
    let cycles = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let (lock, cycles) = (client.lock(format!("crowd-{number}")), cycles.clone());
        callers.spawn(async move {
            loop {
                if let Some(guard) = lock.try_acquire().await.unwrap() {
                    guard.release().await.unwrap();
                }
                if cycles.fetch_add(1, Ordering::Relaxed) == 50 * CALLERS {
                    say("spins");
                }
            }
        });
    }
    callers.join_all().await;
}

/// The worker's part: it holds all of them until it is killed.
pub(crate) async fn hold(orders: Receiver<String>) {
    let client = connect(&url()).await;
    let mut guards = Vec::new();
    for name in NAMES {
        guards.push(client.lock(name).acquire().await.unwrap());
        // A delay, so that their leases expire at different times.
        tokio::time::sleep(LEASE / 9).await;
    }
    let owners: Vec<_> = guards.iter().map(|guard| guard.owner()).collect();
    say(&format!("holds {}", owners.join(" ")));
    let _ = orders.recv();
    unreachable!("nobody orders anything; {guards:?}");
}

pub(crate) const ROLE: &str = "hold";
pub(crate) const CROWD: &str = "spin in a crowd";
const CALLERS: usize = 48;
const NAMES: [&str; 4] = ["killed-a", "killed-b", "killed-c", "killed-d"];
