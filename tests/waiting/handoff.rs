//! Waiters of one client hand the lock off among themselves, within limits.
//!
//! The owner in the store stays the same while a lock is handed off in memory, and is new after every grant by the store: a guard's owner
//! shows how the lock was acquired.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, Lease, Lock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{
    channel, connect, ended, hold_as_stranger, long, patient, release, release_as_stranger,
    scripts, until_listeners,
};
use crate::support::java::Subscriber;
use crate::support::{PATIENCE, RedisServer, eventually, simulated};

#[test]
fn ten_thousand_waiters_cost_at_most_two_scripts_each() {
    simulated(async || {
        for (waiters, handoff_limit) in [(10_000, 32), (2_000, 0)] {
            let server = RedisServer::start();
            let holder = connect(&server.url()).await;
            let held = long(holder.lock("crowd")).acquire().await.unwrap();
            let client = limited(&server, handoff_limit, DEFAULT_WINDOW).await;
            let mut waiting = JoinSet::new();
            for _ in 0..waiters {
                let lock = long(client.lock("crowd"));
                waiting.spawn(async move { release(lock.acquire().await.unwrap()).await });
            }
            until_listeners(&server, "crowd", 1).await;
            let before = scripts(&server);
            release(held).await;
            assert_eq!(ended(waiting).await.len(), waiters);
            let cost = (scripts(&server) - before) as f64 / waiters as f64;
            eprintln!("hand-off limit {handoff_limit}: {cost:.3} scripts for each waiter");
            assert!(cost <= 2.0, "{cost} scripts per hand-off");
        }
    });
}

/// One grant, as its holder saw it.
struct Turn {
    owner: String,
    lease: usize,
    granted: Instant,
    releasing: Instant,
}

/// Lets a task for each lock hold it this many times, and returns the grants in their order.
async fn turns(locks: Vec<(usize, Lock)>, rounds: usize, hold: Duration) -> Vec<Turn> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for (lease, lock) in locks {
        let seen = seen.clone();
        tasks.spawn(async move {
            for _ in 0..rounds {
                let guard = lock.acquire().await.unwrap();
                let granted = Instant::now();
                tokio::task::yield_now().await;
                sleep(hold).await;
                seen.lock().unwrap().push(Turn {
                    owner: guard.owner(),
                    lease,
                    granted,
                    releasing: Instant::now(),
                });
                release(guard).await;
            }
        });
    }
    ended(tasks).await;
    let turns = Arc::into_inner(seen).unwrap().into_inner().unwrap();
    for two in turns.windows(2) {
        assert!(two[0].releasing <= two[1].granted, "two had it");
    }
    turns
}

async fn many_turns(lock: &Lock) -> Vec<Turn> {
    turns(vec![(0, lock.clone()); 16], 20, Duration::ZERO).await
}

/// Splits the turns into runs that followed each other without the store.
fn runs(turns: &[Turn]) -> Vec<&[Turn]> {
    turns.chunk_by(|a, b| a.owner == b.owner).collect()
}

fn longest(turns: &[Turn]) -> usize {
    runs(turns).iter().map(|run| run.len()).max().unwrap_or(0)
}

/// Returns how long the lock was free each time before the store granted it again.
fn pauses(turns: &[Turn]) -> Vec<Duration> {
    let runs = runs(turns);
    let pauses = runs.windows(2).map(|two| {
        let before = two[0].last().expect("no run is empty");
        two[1][0].granted - before.releasing
    });
    pauses.collect()
}

async fn limited(server: &RedisServer, limit: u32, window: Duration) -> Client {
    let client = patient(&server.url()).handoff_limit(limit);
    let client = client.handoff_window(window).connect().await;
    client.expect("the server is up")
}

/// Other clients have two milliseconds to acquire first, beside a round trip of two each for the release and the next request.
const STANDS_BACK: Duration = Duration::from_millis(6);
const DEFAULT_WINDOW: Duration = Duration::from_millis(100);

#[test]
fn a_lock_is_handed_off_without_the_store_and_a_limited_number_of_times_in_a_row() {
    simulated(async || {
        for limit in [0, 1, 5, 32] {
            let server = RedisServer::start();
            let client = limited(&server, limit, PATIENCE).await;
            let before = scripts(&server);
            let turns = many_turns(&client.lock("limited")).await;
            // The run is the grant by the store, and then as many hand-offs as allowed.
            let run = limit as usize + 1;
            assert_eq!(longest(&turns), run);
            let calls = usize::try_from(scripts(&server) - before).unwrap();
            assert!(calls <= 3 * turns.len().div_ceil(run), "{calls} scripts");
        }
    });
}

#[test]
fn a_lock_is_handed_off_for_a_limited_time() {
    simulated(async || {
        let server = RedisServer::start();
        let (window, hold) = (Duration::from_millis(40), Duration::from_millis(2));
        let client = limited(&server, u32::MAX, window).await;
        let turns = turns(vec![(0, client.lock("window")); 16], 20, hold).await;
        let runs = runs(&turns);
        assert!(longest(&turns) > 10 && runs.len() > 10);
        for run in runs {
            let passed_on_after = run[run.len() - 1].granted - run[0].granted;
            assert!(passed_on_after < window, "{passed_on_after:?}");
        }
    });
}

#[test]
fn a_watched_lock_is_handed_off_more_slowly_but_still() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, watcher) = (connect(&server.url()).await, connect(&server.url()).await);
        let mut watch = watcher.admin().watch("*");
        // Nothing is held: the watch goes on to subscribe, by one pattern for each kind of lock.
        eventually(PATIENCE, "it listens", async || {
            let idle = timeout(Duration::from_millis(20), watch.next()).await;
            assert!(idle.is_err(), "{idle:?}");
            server.query::<u64>(&["PUBSUB", "NUMPAT"]) == 2
        })
        .await;
        let watching = tokio::spawn(async move { while watch.next().await.is_ok() {} });
        let turns = many_turns(&client.lock("watched")).await;
        let pauses = pauses(&turns);
        let shortest = pauses.iter().min().expect("the store was asked again");
        assert!(*shortest >= STANDS_BACK, "{shortest:?}");
        let took = turns[turns.len() - 1].releasing - turns[0].granted;
        eprintln!("a turn takes {:?}", took / turns.len() as u32);
        watching.abort();
    });
}

#[test]
fn a_client_yields_after_its_turn_while_others_are_subscribed() {
    simulated(async || {
        let server = RedisServer::start();
        let client = limited(&server, 0, DEFAULT_WINDOW).await;
        // Any subscriber does, and this one never requests the lock.
        let _listens = Subscriber::start(&server, &channel("back")).await;
        // Another program holds it first, so that this client subscribes, too, and receives its own releases.
        hold_as_stranger(&server, "back", PATIENCE);
        let locks = vec![(0, client.lock("back")); 40];
        let turns = tokio::spawn(turns(locks, 1, Duration::ZERO));
        until_listeners(&server, "back", 2).await;
        release_as_stranger(&server, "back");
        let turns = timeout(PATIENCE, turns).await.expect("all end").unwrap();
        let pauses = pauses(&turns);
        assert_eq!(pauses.len(), 39);
        let shortest = pauses.iter().min().expect("there are 39");
        assert!(*shortest >= STANDS_BACK, "{shortest:?}");
    });
}

#[test]
fn a_lock_is_never_handed_off_to_a_waiter_with_another_lease() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let leases = [20, 30, 40].map(|seconds| Lease::KeepAlive(Duration::from_secs(seconds)));
        // Neighbours have equal leases in pairs, so that hand-offs are possible.
        let locks = (0..30).map(|number| {
            let lease = number / 2 % leases.len();
            (lease, client.lock("terms").with_lease(leases[lease]))
        });
        let turns = turns(locks.collect(), 10, Duration::ZERO).await;
        let passed_on = turns.windows(2).filter(|two| two[0].owner == two[1].owner);
        assert!(passed_on.count() > 10);
        for run in runs(&turns) {
            assert!(run.iter().all(|turn| turn.lease == run[0].lease));
        }
    });
}

#[test]
fn a_fixed_lease_or_one_with_max_hold_is_never_handed_off() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let lease = Duration::from_secs(30);
        let fixed = client.lock("fixed").with_lease(Lease::Fixed(lease));
        let bounded = client.lock("bounded").with_max_hold(lease);
        for lock in [fixed, bounded] {
            let turns = many_turns(&lock).await;
            assert_eq!(longest(&turns), 1, "`{}` was passed on", lock.name());
        }
    });
}
