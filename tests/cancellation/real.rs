//! Futures dropped at random moments, on two threads at once and on a real server: afterwards every lock is free, and removed from the
//! memory of its clients. A part of the program `real`.
#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests start tasks and keep their own time"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Client, Lease};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{Fair, Family, Plain, Player, RedisServer, SeededRng, Several, eventually};

mod a_storm_of_timeouts_on_two_threads_leaves_everything_free {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks() {
        drop_futures::<Plain>("").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks_without_scripts() {
        drop_futures::<Plain>("?scripts=off").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fair_locks() {
        drop_futures::<Fair>("").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_several_permits() {
        drop_futures::<Several>("").await;
    }
}

/// Has eight tasks of each of two clients contend for three locks, and give up after a moment.
async fn drop_futures<F: Family>(parameters: &str) {
    let server = RedisServer::start();
    let url = format!("{}{parameters}", server.url());
    let connect = async || {
        let builder = Client::builder(&url).default_lease(Lease::KeepAlive(LEASE));
        let builder = builder.command_timeout(PATIENCE).connect_timeout(PATIENCE);
        Player::<F>::new(builder.connect().await.expect("the server runs"))
    };
    let clients = [connect().await, connect().await];
    let locks: Arc<[_]> = (0..3).map(Contended::new).collect();
    let mut rng = SeededRng::from_env_or(20_260_301);
    let mut tasks = JoinSet::new();
    for client in &clients {
        for _ in 0..8 {
            let rng = SeededRng::new(rng.next_u64());
            tasks.spawn(contend(client.clone(), locks.clone(), rng));
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    for Contended { name, .. } in locks.iter() {
        let lock = clients[1].lock(name.as_str());
        let guard = lock.acquire_timeout(PATIENCE).await;
        let guard = guard.expect("the server runs").expect("it is free");
        guard.release().await.expect("it is held by this guard");
        for client in &clients {
            let what = format!("`{name}` is forgotten");
            eventually(PATIENCE, &what, async || {
                if client.remembers(name) {
                    drop(client.lock("another").acquire().await);
                }
                !client.remembers(name)
            })
            .await;
        }
    }
    eventually(PATIENCE, "nothing is left", async || {
        let keys = server.keys();
        let mut keys = keys.iter().filter(|key| key.contains("contended"));
        let stays = |key: &&String| {
            key.starts_with("distlock_undone:") || F::PERMITS > 0 && key.starts_with("contended")
        };
        keys.all(|key| stays(&key)) && server.pubsub_channels().is_empty()
    })
    .await;
}

/// A lock, and whether some task certainly holds it.
struct Contended {
    name: String,
    is_held: AtomicBool,
    acquired: AtomicUsize,
    given_up: AtomicUsize,
}

impl Contended {
    fn new(number: u32) -> Self {
        Self {
            name: format!("contended-{number}-"),
            is_held: AtomicBool::default(),
            acquired: AtomicUsize::default(),
            given_up: AtomicUsize::default(),
        }
    }

    /// Returns whether the lock was acquired, and given up, often enough to show something.
    fn has_shown_enough(&self) -> bool {
        let often = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 10;
        often(&self.acquired) && often(&self.given_up)
    }
}

/// Contends until every lock has shown enough.
async fn contend<F: Family>(client: Player<F>, locks: Arc<[Contended]>, mut rng: SeededRng) {
    for round in 0.. {
        if round >= ROUNDS && locks.iter().all(Contended::has_shown_enough) {
            break;
        }
        let lock = rng.pick(&locks);
        let acquiring = client.lock(lock.name.as_str()).acquire();
        // On a busy machine every acquire takes longer.
        let longest = (12 * LONGEST_HOLD) << (round / ROUNDS).min(8);
        let limit = Duration::from_micros(rng.below(longest));
        let Ok(guard) = timeout(limit, acquiring).await else {
            lock.given_up.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let guard = guard.expect("the store answers");
        lock.acquired.fetch_add(1, Ordering::Relaxed);
        assert!(!lock.is_held.swap(true, Ordering::SeqCst), "two hold it");
        sleep(Duration::from_micros(rng.below(LONGEST_HOLD))).await;
        assert!(guard.is_held());
        lock.is_held.store(false, Ordering::SeqCst);
        match rng.below(3) {
            0 => drop(guard),
            1 => guard.release().await.expect("it is held by this guard"),
            _ => {
                let limit = Duration::from_micros(rng.below(LONGEST_HOLD));
                // Whether given up or not, it is released.
                let _ = timeout(limit, guard.release()).await;
            }
        }
    }
}

/// The least number of attempts of each task.
const ROUNDS: u32 = 60;
/// The longest hold, in microseconds.
const LONGEST_HOLD: u64 = 500;
/// The time for which an orphaned hold would be visible.
const LEASE: Duration = Duration::from_secs(300);
/// Upper bound for any wait; only a failure takes as long.
const PATIENCE: Duration = Duration::from_secs(120);
