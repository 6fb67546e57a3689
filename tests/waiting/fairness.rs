//! A client that always has somebody waiting lets others have their turn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

use distlock::{Backoff, Client, Wait};
use tokio::task::JoinSet;

use super::support::java::Subscriber;
use super::support::{Java, RedisServer, eventually, simulated};
use super::{
    PATIENCE, channel, connect, give_back, hold_as_stranger, patient, release_as_stranger,
    until_listeners,
};

/// Tasks of one client that take turns without a pause, for as long as this lives.
struct Crowd {
    grants: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Crowd {
    fn start(client: &Client, name: &str, size: usize, hold: Duration) -> Self {
        let mut crowd = Self {
            grants: Arc::default(),
            over: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..size {
            let (lock, grants, over) =
                (client.lock(name), crowd.grants.clone(), crowd.over.clone());
            crowd.tasks.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await.unwrap();
                    grants.fetch_add(1, Ordering::Relaxed);
                    if hold.is_zero() {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(hold).await;
                    }
                    give_back(guard).await;
                }
            });
        }
        crowd
    }

    fn grants(&self) -> u64 {
        self.grants.load(Ordering::Relaxed)
    }

    /// Until everyone has had the lock since, more or less.
    async fn goes_round(&self) {
        let enough = self.grants() + 50;
        eventually(PATIENCE, "the crowd goes on", async || {
            self.grants() >= enough
        })
        .await;
    }

    async fn stop(mut self) {
        self.over.store(true, Ordering::Relaxed);
        while let Some(ended) = tokio::time::timeout(PATIENCE, self.tasks.join_next())
            .await
            .expect("everyone gets the lock once more")
        {
            ended.unwrap();
        }
    }
}

const HOLDS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];

#[test]
fn two_clients_that_contend_all_the_time_share_the_lock() {
    simulated(async || {
        let server = RedisServer::start();
        for hold in HOLDS {
            let mut crowds = Vec::new();
            for _ in 0..2 {
                let client = connect(&server.url()).await;
                crowds.push(Crowd::start(&client, "shared", 16, hold));
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            eventually(PATIENCE, "there is something to share", async || {
                crowds.iter().map(Crowd::grants).sum::<u64>() > 300
            })
            .await;
            let grants: Vec<u64> = crowds.iter().map(Crowd::grants).collect();
            for crowd in crowds {
                crowd.stop().await;
            }
            let all: u64 = grants.iter().sum();
            let least = *grants.iter().min().unwrap() as f64 / all as f64;
            eprintln!("held for {hold:?}: {grants:?} grants, the smaller share is {least:.2}");
            assert!(all > 100, "only {all} grants");
            assert!(least >= 0.15, "{grants:?}");
        }
    });
}

#[test]
fn a_client_stands_back_after_its_turn_while_others_listen() {
    simulated(async || {
        let server = RedisServer::start();
        let client = patient(&server.url()).handoff_limit(0);
        let client = client.connect().await.unwrap();
        // Any waiter does, and this one never asks for the lock.
        let _listens = Subscriber::start(&server, &channel("back")).await;
        // Somebody else has it first, so that this client listens, too: it hears its own releases.
        hold_as_stranger(&server, "back", PATIENCE);
        let released = Arc::new(Mutex::new(None::<Instant>));
        let pauses = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for _ in 0..40 {
            let (lock, released, pauses) = (client.lock("back"), released.clone(), pauses.clone());
            tasks.spawn(async move {
                let guard = lock.acquire().await.unwrap();
                if let Some(released) = *released.lock().unwrap() {
                    pauses.lock().unwrap().push(released.elapsed());
                }
                *released.lock().unwrap() = Some(Instant::now());
                give_back(guard).await;
            });
        }
        until_listeners(&server, "back", 2).await;
        release_as_stranger(&server, "back");
        while let Some(ended) = tokio::time::timeout(PATIENCE, tasks.join_next())
            .await
            .unwrap()
        {
            ended.unwrap();
        }
        let pauses = pauses.lock().unwrap();
        assert_eq!(pauses.len(), 39);
        let shortest = pauses.iter().min().unwrap();
        // Others had two milliseconds to be first, beside a round trip of two each for the release and the next request.
        assert!(*shortest >= Duration::from_millis(6), "{shortest:?}");
    });
}

#[test]
fn a_redisson_waiter_gets_its_turn_against_a_crowd_of_ours() {
    simulated(async || {
        let server = RedisServer::start();
        for hold in HOLDS {
            let client = connect(&server.url()).await;
            let crowd = Crowd::start(&client, "java", 64, hold);
            let java = Java::start(&server).await;
            let mut waits = Vec::new();
            for round in 0..10 {
                crowd.goes_round().await;
                let begun = Instant::now();
                assert!(
                    java.try_lock(&server, "java", 47, TURN_WITHIN).await,
                    "kept out in round {round}"
                );
                waits.push(begun.elapsed());
                let freed = java.unlock("java", 47).await;
                assert_eq!(freed, Some(true), "somebody broke into Redisson's lock");
            }
            crowd.stop().await;
            report(hold, waits);
        }
    });
}

#[test]
fn a_waiter_of_another_client_gets_its_turn_against_a_crowd_of_ours() {
    simulated(async || {
        alone_against_a_crowd(Wait::Notify).await;
    });
}

#[test]
fn a_poller_that_asks_often_gets_its_turn_against_a_crowd_of_ours() {
    simulated(async || {
        // Nobody hears of a poller: it has to find the lock free in one of the pauses made for its like.
        let often = Duration::from_millis(8);
        alone_against_a_crowd(Wait::Poll(Backoff::new(often, often))).await;
    });
}

async fn alone_against_a_crowd(wait: Wait) {
    let server = RedisServer::start();
    for hold in HOLDS {
        let client = connect(&server.url()).await;
        let crowd = Crowd::start(&client, "lone", 64, hold);
        let lone = connect(&server.url()).await;
        let lock = lone.lock("lone").with_wait(wait);
        let mut waits = Vec::new();
        for round in 0..10 {
            crowd.goes_round().await;
            let begun = Instant::now();
            let guard = lock.acquire_timeout(TURN_WITHIN).await.unwrap();
            let guard =
                guard.unwrap_or_else(|| panic!("held for {hold:?}: kept out in round {round}"));
            waits.push(begun.elapsed());
            give_back(guard).await;
        }
        crowd.stop().await;
        report(hold, waits);
    }
}

fn report(hold: Duration, mut waits: Vec<Duration>) {
    waits.sort();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    eprintln!("held for {hold:?}: waited {median:?} (median), {longest:?} (longest)");
}

const TURN_WITHIN: Duration = Duration::from_secs(15);
