//! Waiters of one client pass the lock on among themselves, within limits.
//!
//! The owner in the store stays the same while a lock is passed on in memory, and is a new one after
//! every grant by the store: so a guard's owner tells how it came by the lock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

use distlock::{Lease, Lock};
use tokio::task::JoinSet;

use super::support::{RedisServer, eventually, simulated};
use super::{PATIENCE, connect, give_back, long, patient, scripts, until_listeners};

#[test]
fn ten_thousand_waiters_cost_at_most_two_scripts_each() {
    simulated(async || {
        let server = RedisServer::start();
        for (waiters, handoff_limit) in [(10_000, 32), (2_000, 0)] {
            let holder = connect(&server.url()).await;
            let held = long(holder.lock("crowd")).acquire().await.unwrap();
            let client = patient(&server.url()).handoff_limit(handoff_limit);
            let client = client.connect().await.unwrap();
            let started = Arc::new(AtomicUsize::new(0));
            let mut waiting = JoinSet::new();
            for _ in 0..waiters {
                let (lock, started) = (long(client.lock("crowd")), started.clone());
                waiting.spawn(async move {
                    started.fetch_add(1, Ordering::Relaxed);
                    let guard = lock.acquire().await.unwrap();
                    give_back(guard).await;
                });
            }
            eventually(PATIENCE, "everyone waits", async || {
                started.load(Ordering::Relaxed) == waiters
            })
            .await;
            until_listeners(&server, "crowd", 1).await;
            let (before, begun) = (scripts(&server), Instant::now());
            give_back(held).await;
            let mut served = 0;
            while let Some(ended) = tokio::time::timeout(PATIENCE, waiting.join_next())
                .await
                .expect("somebody is next")
            {
                ended.unwrap();
                served += 1;
            }
            assert_eq!(served, waiters);
            let took = begun.elapsed();
            let cost = (scripts(&server) - before) as f64 / waiters as f64;
            eprintln!(
                "hand-off limit {handoff_limit}: {waiters} served in {took:?}, {cost:.3} scripts each"
            );
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

/// Lets tasks take turns for a while, one for each lock given, and says who had it in which order.
///
/// For longer on a machine so busy that it has not shown `enough`.
async fn turns(
    locks: Vec<(usize, Lock)>,
    hold: Duration,
    enough: impl Fn(&[Turn]) -> bool,
) -> Vec<Turn> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for (lease, lock) in locks {
        let (seen, over) = (seen.clone(), over.clone());
        tasks.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let guard = lock.acquire().await.unwrap();
                let granted = Instant::now();
                if hold.is_zero() {
                    tokio::task::yield_now().await;
                } else {
                    tokio::time::sleep(hold).await;
                }
                let owner = guard.owner();
                let releasing = Instant::now();
                seen.lock().unwrap().push(Turn {
                    owner,
                    lease,
                    granted,
                    releasing,
                });
                give_back(guard).await;
            }
        });
    }
    let begun = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(600)).await;
        if enough(&seen.lock().unwrap()) || begun.elapsed() > PATIENCE / 2 {
            break;
        }
    }
    over.store(true, Ordering::Relaxed);
    while let Some(ended) = tokio::time::timeout(PATIENCE, tasks.join_next())
        .await
        .unwrap()
    {
        ended.unwrap();
    }
    Arc::into_inner(seen).unwrap().into_inner().unwrap()
}

/// Turns that followed each other without the store.
fn runs(turns: &[Turn]) -> Vec<&[Turn]> {
    turns.chunk_by(|a, b| a.owner == b.owner).collect()
}

#[test]
fn a_lock_is_passed_on_without_the_store() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let before = scripts(&server);
        let locks = (0..64).map(|_| (0, client.lock("local"))).collect();
        let turns = turns(locks, Duration::ZERO, |turns| turns.len() > 1000).await;
        let calls = scripts(&server) - before;
        let (grants, longest) = (turns.len(), longest(&turns));
        eprintln!(
            "{grants} grants with {calls} scripts: {:.1} grants per script, {longest} in a row",
            grants as f64 / calls as f64
        );
        assert!(
            calls * 4 < grants as u64,
            "{calls} scripts for {grants} grants"
        );
        assert!(longest <= 33, "{longest} in a row");
    });
}

#[test]
fn a_lock_is_passed_on_a_limited_number_of_times_in_a_row() {
    simulated(async || {
        let server = RedisServer::start();
        for limit in [1, 5] {
            let client = patient(&server.url())
                .handoff_limit(limit)
                .handoff_window(PATIENCE);
            let client = client.connect().await.unwrap();
            let locks = (0..16).map(|_| (0, client.lock("limited"))).collect();
            let enough = |turns: &[Turn]| longest(turns) > limit as usize;
            let longest = longest(&turns(locks, Duration::ZERO, enough).await);
            // The grant by the store, and then as often as allowed.
            assert_eq!(longest, limit as usize + 1);
        }
    });
}

#[test]
fn a_lock_is_passed_on_for_a_limited_time() {
    simulated(async || {
        let server = RedisServer::start();
        let window = Duration::from_millis(40);
        let client = patient(&server.url())
            .handoff_limit(u32::MAX)
            .handoff_window(window);
        let client = client.connect().await.unwrap();
        let locks = (0..16).map(|_| (0, client.lock("window"))).collect();
        let enough = |turns: &[Turn]| longest(turns) > 2 && runs(turns).len() > 3;
        let turns = turns(locks, Duration::from_millis(2), enough).await;
        let runs = runs(&turns);
        assert!(longest(&turns) > 2, "nothing was passed on");
        assert!(runs.len() > 3, "the store was asked {} times", runs.len());
        for run in runs {
            let [first, .., before, _] = run else {
                continue;
            };
            // Counted from after the grant and until before the release: no slack needed.
            let passed_on_after = before.releasing - first.granted;
            assert!(passed_on_after < window, "{passed_on_after:?}");
        }
    });
}

#[test]
fn a_lock_that_is_watched_is_passed_on_more_slowly_and_all_the_same() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, watcher) = (connect(&server.url()).await, connect(&server.url()).await);
        let locks = || (0..16).map(|_| (0, client.lock("watched"))).collect();
        let enough = |turns: &[Turn]| turns.len() > 200;
        let alone = pace(&turns(locks(), Duration::ZERO, enough).await);
        let mut watch = watcher.admin().watch("*");
        // Nothing is held: it goes on to listen, by one pattern for each sort of lock.
        eventually(PATIENCE, "it listens", async || {
            let idle = tokio::time::timeout(Duration::from_millis(20), watch.next()).await;
            assert!(idle.is_err(), "{idle:?}");
            server.query::<u64>(&["PUBSUB", "NUMPAT"]) == 2
        })
        .await;
        let watching = tokio::spawn(async move {
            loop {
                watch.next().await.unwrap();
            }
        });
        let turns = turns(locks(), Duration::ZERO, enough).await;
        let watched = pace(&turns);
        // Several times as long, on a machine that does nothing else.
        eprintln!("a turn takes {alone:?} alone, {watched:?} when it is watched");
        assert!(turns.len() > 200, "only {} turns", turns.len());
        // How long a turn takes says as much of the machine as of the lock; a pause that is made has been made on a slow one, too.
        let runs = runs(&turns);
        let pauses = runs.windows(2).map(|two| {
            let (before, after) = (two[0].last().expect("no run is empty"), &two[1][0]);
            after.granted.duration_since(before.releasing)
        });
        let shortest = pauses.min().expect("the store was asked more than once");
        assert!(shortest >= Duration::from_millis(2), "{shortest:?}");
        for pair in turns.windows(2) {
            assert!(pair[0].releasing <= pair[1].granted, "two had it");
        }
        watching.abort();
    });
}

/// How long a turn takes.
fn pace(turns: &[Turn]) -> Duration {
    let [first, .., last] = turns else {
        panic!("nobody had a turn")
    };
    let count = u32::try_from(turns.len()).expect("there are not so many");
    last.releasing.duration_since(first.granted) / count
}

#[test]
fn a_limit_of_zero_asks_the_store_every_time() {
    simulated(async || {
        let server = RedisServer::start();
        let client = patient(&server.url()).handoff_limit(0);
        let client = client.connect().await.unwrap();
        let before = scripts(&server);
        let locks = (0..16).map(|_| (0, client.lock("never"))).collect();
        let turns = turns(locks, Duration::ZERO, |turns| turns.len() > 100).await;
        assert!(turns.len() > 100, "only {} turns", turns.len());
        assert_eq!(longest(&turns), 1);
        assert!(scripts(&server) - before >= turns.len() as u64);
    });
}

#[test]
fn a_lock_is_never_passed_to_a_waiter_who_wants_another_lease() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let leases = [20, 30, 40].map(|seconds| Lease::KeepAlive(Duration::from_secs(seconds)));
        // Neighbours are alike in twos, so that there is something to pass on.
        let locks = (0..30).map(|number| {
            let lease = number / 2 % leases.len();
            (lease, client.lock("terms").with_lease(leases[lease]))
        });
        let passed_on = |two: &&[Turn]| two[0].owner == two[1].owner;
        let changes = |two: &&[Turn]| two[0].lease != two[1].lease;
        let enough = |turns: &[Turn]| {
            let pairs = || turns.windows(2);
            pairs().filter(passed_on).count() > 10 && pairs().filter(changes).count() > 10
        };
        let turns = turns(locks.collect(), Duration::ZERO, enough).await;
        let passed_on = turns.windows(2).filter(passed_on);
        let mut seen = 0;
        for two in passed_on {
            assert_eq!(two[0].lease, two[1].lease, "after {seen} good ones");
            seen += 1;
        }
        eprintln!("{} turns, {seen} of them passed on", turns.len());
        assert!(seen > 10, "only {seen} passed on");
        let changes = turns.windows(2).filter(changes);
        assert!(changes.count() > 10, "leases did not meet");
    });
}

#[test]
fn a_fixed_lease_or_one_with_a_longest_hold_is_never_passed_on() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let lease = Duration::from_secs(30);
        let fixed = client.lock("fixed").with_lease(Lease::Fixed(lease));
        let bounded = client.lock("bounded").with_max_hold(lease);
        for lock in [fixed, bounded] {
            let locks = (0..16).map(|_| (0, lock.clone())).collect();
            let turns = turns(locks, Duration::ZERO, |turns| turns.len() > 50).await;
            assert!(turns.len() > 50, "only {} turns", turns.len());
            assert_eq!(longest(&turns), 1, "`{}` was passed on", lock.name());
        }
    });
}

fn longest(turns: &[Turn]) -> usize {
    runs(turns).iter().map(|run| run.len()).max().unwrap_or(0)
}
