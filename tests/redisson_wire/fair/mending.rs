//! A list and a zset that do not agree: one was deleted, or a script of Redisson's was stopped half-way.

use std::time::Duration;

use distlock::Error;
use tokio::task::JoinSet;

use super::fair::java::{FIVE_MINUTES, RedissonThreads, queue, timeout};
use super::fair::{ALIVE, NAME, granted, hold, line, now, start_waiter, times};
use super::support::java::UUID;
use super::support::{RedisServer, eventually, simulated};
use super::{PATIENCE, connect, leaves_nothing};

/// Redisson waits for such a waiter for ever, or fails.
#[test]
fn a_queue_entry_without_a_timeout_is_skipped() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let held = hold(&client).await;
        server.cmd(&["RPUSH", &queue(), &unknown_owner(1)]);
        let (waiting, owner) = start_waiter(&server, &client).await;
        server.cmd(&["RPUSH", &queue(), &unknown_owner(2)]);
        held.release().await.expect("it is ours");
        let guard = granted(waiting).await;
        assert_eq!(guard.owner(), owner);
        guard.release().await.expect("it is ours");
        leaves_nothing(&server, client).await;
    });
}

/// A repair beside it does not delete its mark, by which it is known to have crashed.
#[test]
fn a_crashed_waiter_is_skipped_soon_after_a_repair_of_the_queue() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let held = hold(&client).await;
        let (dead, over) = (java.owner(-1), now(&server));
        server.cmd(&["RPUSH", &queue(), &dead]);
        server.cmd(&["ZADD", &timeout(), &(over + 360_000).to_string(), &dead]);
        server.cmd(&["ZADD", ALIVE, &(over - 1).to_string(), &dead]);
        // A waiter with a timeout and no entry.
        server.cmd(&[
            "ZADD",
            &timeout(),
            &(over + 360_000).to_string(),
            &unknown_owner(1),
        ]);
        let (waiting, owner) = start_waiter(&server, &client).await;
        held.release().await.expect("it is ours");
        let guard = granted(waiting).await;
        assert_eq!(guard.owner(), owner);
        guard.release().await.expect("it is ours");
        leaves_nothing(&server, client).await;
    });
}

/// As long as it is there, every request would scan the whole queue.
#[test]
fn a_waiter_deep_in_the_queue_is_not_removed_at_the_next_request() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let held = hold(&client).await;
        let (first, one) = start_waiter(&server, &client).await;
        server.cmd(&["RPUSH", &queue(), &unknown_owner(1)]);
        let (second, two) = start_waiter(&server, &client).await;
        assert_eq!(line(&server), [one, two]);
        held.release().await.expect("it is ours");
        for waiting in [first, second] {
            granted(waiting).await.release().await.expect("it is ours");
        }
        leaves_nothing(&server, client).await;
    });
}

/// The Redisson thread believes that it is queued, and is never notified.
#[test]
fn a_redisson_waiter_with_a_timeout_and_no_entry_gets_an_entry() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let held = hold(&client).await;
        let over = (now(&server) + 600_000).to_string();
        server.cmd(&["ZADD", &timeout(), &over, &java.owner(1)]);
        java.lock(1, FIVE_MINUTES).await.expect("it is held");
        assert!(line(&server).is_empty(), "it would wait for ever");
        let (waiting, owner) = start_waiter(&server, &client).await;
        java.lock(1, FIVE_MINUTES).await.expect("it is held");
        assert_eq!(line(&server), [owner, java.owner(1)]);
        held.release().await.expect("it is ours");
        granted(waiting).await.release().await.expect("it is ours");
        assert_eq!(java.lock(1, FIVE_MINUTES).await, None);
        assert_eq!(java.unlock(1).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}

/// The two then have the same number of elements.
#[test]
fn one_missing_entry_and_one_missing_timeout_are_repaired_too() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let held = hold(&client).await;
        let over = (now(&server) + 600_000).to_string();
        server.cmd(&["RPUSH", &queue(), &unknown_owner(1)]);
        server.cmd(&["ZADD", &timeout(), &over, &java.owner(1)]);
        let (waiting, owner) = start_waiter(&server, &client).await;
        eventually(PATIENCE, "Java stands in line", async || {
            java.lock(1, FIVE_MINUTES).await.expect("it is held");
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

#[test]
fn waiters_whose_timeouts_were_deleted_keep_their_positions() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let held = hold(&client).await;
        let mut waiting = Vec::new();
        for _ in 0..5 {
            waiting.push(start_waiter(&server, &client).await);
        }
        let came = line(&server);
        server.cmd(&["DEL", &timeout()]);
        eventually(PATIENCE, "all have a time again", async || {
            times(&server).len() == 5
        })
        .await;
        assert_eq!(line(&server), came);
        assert!(times(&server).values().all(|left| *left > 300_000));
        held.release().await.expect("it is ours");
        for (waiting, owner) in waiting {
            let guard = granted(waiting).await;
            assert_eq!(guard.owner(), owner);
            guard.release().await.expect("it is ours");
        }
        leaves_nothing(&server, client).await;
    });
}

/// Its mark has expired, too, like that of a process that was suspended: neither shows that it has an entry.
#[test]
fn a_waiter_without_a_score_whose_mark_has_expired_queues_once() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let held = hold(&client).await;
        let (first, one) = start_waiter(&server, &client).await;
        let (second, two) = start_waiter(&server, &client).await;
        let over = (now(&server) - 1).to_string();
        for owner in [&one, &two] {
            server.cmd(&["ZADD", ALIVE, &over, owner]);
        }
        server.cmd(&["DEL", &timeout()]);
        for owner in [&two, &one] {
            let channel = format!("redisson_lock__channel:{{order}}:{owner}");
            server.cmd(&["PUBLISH", &channel, "2"]);
            eventually(PATIENCE, "it has asked", async || {
                times(&server).contains_key(owner)
            })
            .await;
        }
        let mut line = line(&server);
        line.sort();
        let mut waiters = [one, two];
        waiters.sort();
        assert_eq!(line, waiters);
        held.release().await.expect("it is ours");
        let turn = async |waiting| granted(waiting).await.release().await;
        let (one, two) = tokio::join!(turn(first), turn(second));
        one.and(two).expect("each was its own");
        leaves_nothing(&server, client).await;
    });
}

/// An earlier version could leave the queue in this state.
#[test]
fn a_waiter_that_is_queued_twice_has_one_entry_after_its_next_request() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let held = hold(&client).await;
        let (waiting, owner) = start_waiter(&server, &client).await;
        server.cmd(&["RPUSH", &queue(), &owner]);
        let channel = format!("redisson_lock__channel:{{order}}:{owner}");
        server.cmd(&["PUBLISH", &channel, "2"]);
        eventually(PATIENCE, "it is queued once", async || {
            line(&server) == [owner.clone()]
        })
        .await;
        held.release().await.expect("it is ours");
        granted(waiting).await.release().await.expect("it is ours");
        leaves_nothing(&server, client).await;
    });
}

/// Their order is lost with the list; no waiter is.
#[test]
fn waiters_whose_list_was_deleted_are_queued_again() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        for keys in [
            vec![queue()],
            vec![queue(), timeout()],
            vec![queue(), timeout(), ALIVE.into()],
        ] {
            let held = hold(&client).await;
            let mut turns = JoinSet::new();
            for _ in 0..3 {
                let (waiting, _) = start_waiter(&server, &client).await;
                turns.spawn(async move { granted(waiting).await.release().await });
            }
            for key in &keys {
                server.cmd(&["DEL", key]);
            }
            eventually(PATIENCE, "all stand in line again", async || {
                line(&server).len() == 3 && times(&server).len() == 3
            })
            .await;
            held.release().await.expect("it is ours");
            for released in turns.join_all().await {
                released.expect("it was its own");
            }
        }
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn keys_of_another_type_are_an_error_and_nothing_is_held() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        for key in [queue(), timeout(), ALIVE.into()] {
            server.cmd(&["SET", &key, "something else"]);
            let taken = client
                .fair_lock(NAME)
                .acquire_timeout(Duration::from_secs(5))
                .await;
            assert!(
                matches!(taken, Err(Error::WrongKind { .. })),
                "{key}: {taken:?}"
            );
            assert_eq!(server.keys(), [&*key]);
            server.flushall();
        }
        leaves_nothing(&server, client).await;
    });
}

/// Returns an owner id that no client has.
fn unknown_owner(number: u32) -> String {
    format!("{UUID}:-{number}")
}
