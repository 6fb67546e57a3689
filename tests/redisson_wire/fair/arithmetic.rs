//! Redisson skips a waiter when its timeout has passed, by its own clock, and subtracts from the timeouts of all others the time that one
//! has waited, or might have.

use std::time::Duration;

use distlock::Lease;
use tokio::time::Instant;

use super::fair::java::{FIVE_MINUTES, RedissonThreads, queue, timeout};
use super::fair::{
    ALIVE, NAME, assert_about, granted, hold, line, now, questions, start_waiter, times,
};
use super::support::{RedisServer, eventually, simulated};
use super::{LEASE, PATIENCE, connect, leaves_nothing};

#[test]
fn our_waiter_has_the_timeout_of_the_redisson_waiter_before_it_plus_five_minutes() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let held = hold(&client).await;
        let brief = Duration::from_secs(10);
        java.lock(1, brief).await.expect("it is held");
        let (waiting, owner) = start_waiter(&server, &client).await;
        assert_about(times(&server)[&java.owner(1)], LEASE + brief);
        assert_about(times(&server)[&owner], LEASE + brief + FIVE_MINUTES);
        java.give_up(1, brief).await;
        held.release().await.expect("it is ours");
        granted(waiting).await.release().await.expect("it is ours");
        leaves_nothing(&server, client).await;
    });
}

/// A waiter restores its full timeout with each request, every few seconds.
#[test]
fn our_waiter_raises_its_timeout_again() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let held = hold(&client).await;
        let (waiting, owner) = start_waiter(&server, &client).await;
        server.cmd(&["ZINCRBY", &timeout(), "-250000", &owner]);
        eventually(PATIENCE, "it has its time again", async || {
            times(&server)[&owner] > 300_000
        })
        .await;
        held.release().await.expect("it is ours");
        granted(waiting).await.release().await.expect("it is ours");
        leaves_nothing(&server, client).await;
    });
}

/// A Java `tryLockAsync` that gives up subtracts five minutes from all waiters behind it, however short its wait was.
#[test]
fn a_waiter_skipped_by_redissons_arithmetic_returns_to_the_front() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let brief = Duration::from_secs(5);
        assert_eq!(java.lock(1, brief).await, None);
        let ahead = 2..6;
        for thread in ahead.clone() {
            java.lock(thread, brief).await.expect("it is held");
        }
        let (waiting, owner) = start_waiter(&server, &client).await;
        let hour = Duration::from_secs(3600);
        for thread in [7, 8] {
            java.lock(thread, hour).await.expect("it is held");
        }
        for thread in ahead {
            java.give_up(thread, FIVE_MINUTES).await;
        }
        assert!(times(&server)[&owner] < 0, "there was no harm done");
        // It is the head, and its timeout has passed: the next one is notified.
        assert_eq!(java.unlock(1).await, Some(true));
        assert_eq!(line(&server), [java.owner(7), java.owner(8)]);
        assert_eq!(java.lock(7, brief).await, None);

        eventually(PATIENCE, "it is the first again", async || {
            line(&server) == [owner.clone(), java.owner(8)]
        })
        .await;
        assert_eq!(java.unlock(7).await, Some(true));
        let guard = granted(waiting).await;
        assert_eq!(guard.owner(), owner);
        guard.release().await.expect("it is ours");
        assert_eq!(java.lock(8, FIVE_MINUTES).await, None);
        assert_eq!(java.unlock(8).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}

/// The Java thread that was notified instead does not send its request at once.
#[test]
fn a_skipped_waiter_that_finds_the_lock_free_gets_it_at_once() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        assert_eq!(java.lock(1, FIVE_MINUTES).await, None);
        let (waiting, owner) = start_waiter(&server, &client).await;
        java.lock(2, FIVE_MINUTES).await.expect("it is held");
        skip_waiter(&server, &owner);
        let begun = Instant::now();
        assert_eq!(java.unlock(1).await, Some(true));
        assert_eq!(line(&server), [java.owner(2)]);
        let guard = granted(waiting).await;
        // It sends a request within three seconds, and the first one succeeds.
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(4500), "{took:?}");
        guard.release().await.expect("it is ours");
        assert_eq!(java.lock(2, FIVE_MINUTES).await, None);
        assert_eq!(java.unlock(2).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn a_skipped_waiter_leaves_nothing_behind_when_it_gives_up() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        for given_up in [false, true] {
            assert_eq!(java.lock(1, FIVE_MINUTES).await, None);
            let (waiting, owner) = start_waiter(&server, &client).await;
            skip_waiter(&server, &owner);
            assert_eq!(java.unlock(1).await, Some(true));
            assert_eq!(line(&server).len(), 0);
            if given_up {
                waiting.abort();
            } else {
                granted(waiting).await.release().await.expect("it is ours");
            }
            eventually(PATIENCE, "no key is left", async || {
                server.keys().is_empty()
            })
            .await;
        }
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn a_redisson_client_whose_clock_is_ahead_costs_our_waiter_no_position() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, mut java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let held = hold(&client).await;
        let (waiting, owner) = start_waiter(&server, &client).await;
        java.ahead = 20 * 60_000;
        java.lock(1, FIVE_MINUTES).await.expect("it is held");
        assert_eq!(line(&server), [java.owner(1)], "it was passed over");
        eventually(PATIENCE, "it is the first again", async || {
            line(&server) == [owner.clone(), java.owner(1)]
        })
        .await;
        held.release().await.expect("it is ours");
        granted(waiting).await.release().await.expect("it is ours");
        assert_eq!(java.lock(1, FIVE_MINUTES).await, None);
        assert_eq!(java.unlock(1).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}

/// A waiter of Redisson's would sleep until the timeout of the last waiter in the queue.
#[test]
fn a_returned_waiter_gets_the_lock_soon_after_the_lease_of_a_crashed_holder() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        assert_eq!(java.lock(1, FIVE_MINUTES).await, None);
        let (waiting, owner) = start_waiter(&server, &client).await;
        java.lock(2, FIVE_MINUTES).await.expect("it is held");
        skip_waiter(&server, &owner);
        java.lock(2, FIVE_MINUTES).await.expect("it is held");
        eventually(PATIENCE, "it is the first again", async || {
            line(&server).first() == Some(&owner)
        })
        .await;
        server.cmd(&["PEXPIRE", NAME, "500"]);
        let begun = Instant::now();
        let guard = granted(waiting).await;
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        guard.release().await.expect("it is ours");
        assert_eq!(java.lock(2, FIVE_MINUTES).await, None);
        assert_eq!(java.unlock(2).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn a_crashed_redisson_waiter_is_skipped_when_its_timeout_expires_and_not_before() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        // This lease must not expire before the release.
        let second = Duration::from_secs(2);
        let held = client.fair_lock(NAME).with_lease(Lease::Fixed(second));
        let held = held.acquire().await.expect("it is free");
        java.lock(1, second).await.expect("it is held");
        let over = now(&server) + times(&server)[&java.owner(1)];
        let (waiting, _) = start_waiter(&server, &client).await;
        held.release().await.expect("it is ours");
        let guard = granted(waiting).await;
        let late = now(&server) - over;
        assert!(late >= 0, "{late} ms");
        // The waiter sends a request every three seconds.
        assert!(late < 8000, "{late} ms");
        guard.release().await.expect("it is ours");
        leaves_nothing(&server, client).await;
    });
}

/// Redisson's waiters behind such a waiter send requests without pause.
#[test]
fn a_redisson_waiter_that_may_be_alive_is_waited_for_with_few_polls() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let held = hold(&client).await;
        java.lock(1, FIVE_MINUTES).await.expect("it is held");
        let (waiting, owner) = start_waiter(&server, &client).await;
        held.release().await.expect("it is ours");
        let begun = Instant::now();
        let before = questions(&server);
        eventually(PATIENCE, "it asks", async || questions(&server) > before).await;
        tokio::time::sleep(Duration::from_secs(4).saturating_sub(begun.elapsed())).await;
        let asked = questions(&server) - before;
        let most = 1 + begun.elapsed().as_secs() / 3;
        assert!(asked <= most, "{asked} times in {:?}", begun.elapsed());
        assert_eq!(line(&server), [java.owner(1), owner]);
        assert_eq!(
            java.lock(1, FIVE_MINUTES).await,
            None,
            "it has kept its place"
        );
        assert_eq!(java.unlock(1).await, Some(true));
        granted(waiting).await.release().await.expect("it is ours");
        leaves_nothing(&server, client).await;
    });
}

/// If it crashes there, all waiters behind it wait for that time.
#[test]
fn a_redisson_waiter_behind_many_of_ours_has_no_more_time_than_behind_one() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let held = hold(&client).await;
        let mut waiting = Vec::new();
        for _ in 0..10 {
            waiting.push(start_waiter(&server, &client).await.0);
        }
        java.lock(1, FIVE_MINUTES).await.expect("it is held");
        assert_about(times(&server)[&java.owner(1)], LEASE + 2 * FIVE_MINUTES);
        java.give_up(1, FIVE_MINUTES).await;
        held.release().await.expect("it is ours");
        for waiting in waiting {
            granted(waiting).await.release().await.expect("it is ours");
        }
        leaves_nothing(&server, client).await;
    });
}

/// If all waiters are of this library, a queue whose waiters were all killed does not stay for long.
#[test]
fn a_queue_of_ours_expires_soon_and_one_with_a_redisson_waiter_does_not() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let keys = [queue(), timeout(), ALIVE.to_owned()];
        let ends = || {
            let ends = keys.iter().map(|key| server.pttl(key));
            // A key that does not exist does not expire.
            let ends: Vec<_> = ends.filter(|end| *end != -2).collect();
            (ends.iter().min().copied(), ends.iter().max().copied())
        };
        let soon = || {
            for key in &keys {
                server.cmd(&["PEXPIRE", key, "40000"]);
            }
        };
        let lasts = |why: &str| {
            let (first, _) = ends();
            assert!(first > Some(12 * 3_600_000), "{why}: {first:?}");
            soon();
        };
        let held = hold(&client).await;
        let (first, _) = start_waiter(&server, &client).await;
        let (second, _) = start_waiter(&server, &client).await;
        let (_, last) = ends();
        assert!(last <= Some(15 * 60_000), "{last:?}");
        for thread in [1, 2] {
            java.lock(thread, FIVE_MINUTES).await.expect("it is held");
        }
        // Any action of this library's waiters and holders restores the time to live: an acquire, a wait that is given up, a release.
        soon();
        held.release().await.expect("it is ours");
        let held = granted(first).await;
        lasts("one of ours has its turn");
        second.abort();
        eventually(PATIENCE, "it has left", async || line(&server).len() == 2).await;
        lasts("one of ours has left");
        held.release().await.expect("it is ours");
        lasts("one of ours has given it back");
        for thread in [1, 2] {
            assert_eq!(java.lock(thread, FIVE_MINUTES).await, None);
            assert_eq!(java.unlock(thread).await, Some(true));
        }
        leaves_nothing(&server, client).await;
    });
}

/// Redisson's queue has no time to live. With distlock it has one, in case all waiters crash; but it must not expire while there are
/// waiters.
#[test]
fn redisson_waiters_keep_their_positions_after_ours_have_left() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let hour = Duration::from_secs(3600);
        assert_eq!(java.lock(1, hour).await, None);
        java.lock(2, hour).await.expect("it is held");
        let (waiting, _) = start_waiter(&server, &client).await;
        for key in [&*queue(), &*timeout(), ALIVE] {
            assert!(server.pttl(key) > 0, "`{key}` has no end");
        }
        java.lock(3, hour).await.expect("it is held");
        waiting.abort();
        eventually(PATIENCE, "it has left", async || line(&server).len() == 2).await;
        let last = times(&server).into_values().max().expect("two of them");
        for key in [&queue(), &timeout()] {
            assert!(server.pttl(key) > last, "`{key}` ends too soon");
        }
        // The waiters of this library that come later set a time to live on every key that they make anew.
        let (waiting, _) = start_waiter(&server, &client).await;
        for key in [&*queue(), &*timeout(), ALIVE] {
            assert!(server.pttl(key) > last, "`{key}`");
        }
        assert_eq!(java.unlock(1).await, Some(true));
        for thread in [2, 3] {
            assert_eq!(java.lock(thread, hour).await, None);
            assert_eq!(java.unlock(thread).await, Some(true));
        }
        granted(waiting).await.release().await.expect("it is ours");
        leaves_nothing(&server, client).await;
    });
}

/// All of Redisson's waiters send a request at that moment.
#[test]
fn when_a_lease_ends_only_the_head_of_the_queue_sends_a_request() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let held = hold(&client).await;
        // The lease expires before any of them but the head would send a request by itself.
        server.cmd(&["PEXPIRE", NAME, "2500"]);
        let mut waiting = Vec::new();
        for _ in 0..20 {
            waiting.push(tokio::spawn(client.fair_lock(NAME).acquire()));
        }
        eventually(PATIENCE, "all of them sleep", async || {
            questions(&server) >= 40 && server.pubsub_channels().len() == 20
        })
        .await;
        let first = line(&server)[0].clone();
        let before = questions(&server);
        eventually(PATIENCE, "the first has it", async || {
            server.hgetall(NAME).contains_key(&first)
        })
        .await;
        let asked = questions(&server) - before;
        assert!(asked <= 3, "{asked} questions");
        held.forget();
        for waiting in waiting {
            granted(waiting).await.release().await.expect("it is ours");
        }
        leaves_nothing(&server, client).await;
    });
}

/// Skips a waiter, as two of Redisson's waiters do whose waits are longer than they seemed.
fn skip_waiter(server: &RedisServer, owner: &str) {
    server.cmd(&["ZINCRBY", &timeout(), "-9000000", owner]);
}
