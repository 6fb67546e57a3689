//! A client that always has a waiter lets others have their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Backoff, Client, Wait};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{PATIENCE, connect, ended, release};
use crate::support::{Java, RedisServer, eventually, simulated};

/// Tasks of one client that take turns without a pause.
struct ContendingTasks {
    grants: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl ContendingTasks {
    fn start(client: &Client, size: usize, hold: Duration) -> Self {
        let mut crowd = Self {
            grants: Arc::default(),
            over: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..size {
            let (lock, grants) = (client.lock(NAME), crowd.grants.clone());
            let over = crowd.over.clone();
            crowd.tasks.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await.unwrap();
                    grants.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    sleep(hold).await;
                    release(guard).await;
                }
            });
        }
        crowd
    }

    fn grants(&self) -> u64 {
        self.grants.load(Ordering::Relaxed)
    }

    async fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        ended(self.tasks).await;
    }
}

const NAME: &str = "shared";
const HOLDS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];

#[test]
fn two_clients_that_contend_all_the_time_share_the_lock() {
    simulated(async || {
        for hold in HOLDS {
            let server = RedisServer::start();
            let mut crowds = Vec::new();
            for _ in 0..2 {
                crowds.push(ContendingTasks::start(
                    &connect(&server.url()).await,
                    16,
                    hold,
                ));
            }
            sleep(Duration::from_secs(5)).await;
            let grants: Vec<u64> = crowds.iter().map(ContendingTasks::grants).collect();
            for crowd in crowds {
                crowd.stop().await;
            }
            let (all, least) = (grants.iter().sum::<u64>(), grants.iter().min().unwrap());
            assert!(all > 1000 && least * 4 >= all, "{grants:?}");
        }
    });
}

/// Plays another program that acquires the lock once and releases it.
async fn has_its_turn(server: &RedisServer, turn: impl AsyncFn()) {
    for hold in HOLDS {
        let crowd = ContendingTasks::start(&connect(&server.url()).await, 64, hold);
        for round in 0..10 {
            let enough = crowd.grants() + 50;
            eventually(PATIENCE, "the crowd goes on", async || {
                crowd.grants() >= enough
            })
            .await;
            let turn = timeout(TURN_WITHIN, turn()).await;
            turn.unwrap_or_else(|_| panic!("held for {hold:?}: kept out in round {round}"));
        }
        crowd.stop().await;
    }
}

const TURN_WITHIN: Duration = Duration::from_secs(5);

#[test]
fn a_redisson_waiter_gets_its_turn_against_many_of_ours() {
    simulated(async || {
        let server = RedisServer::start();
        let java = Java::start(&server).await;
        has_its_turn(&server, async || {
            assert!(java.try_lock(&server, NAME, 47, PATIENCE).await);
            let freed = java.unlock(NAME, 47).await;
            assert_eq!(freed, Some(true), "Redisson's lock was broken into");
        })
        .await;
    });
}

#[test]
fn a_waiter_of_another_client_gets_its_turn_against_many_of_ours() {
    simulated(async || {
        // Other clients cannot detect a poller: it has to find the lock free in one of the pauses made for pollers.
        let often = Duration::from_millis(8);
        for wait in [Wait::Notify, Wait::Poll(Backoff::new(often, often))] {
            let server = RedisServer::start();
            let lone = connect(&server.url()).await;
            has_its_turn(&server, async || {
                let lock = lone.lock(NAME).with_wait(wait);
                release(lock.acquire().await.unwrap()).await;
            })
            .await;
        }
    });
}
