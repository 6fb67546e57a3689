//! Java's threads and distlock's waiters in one queue.

use std::time::Duration;

use distlock::Change;

use super::fair::java::{FIVE_MINUTES, RedissonThreads, queue, timeout};
use super::fair::{ALIVE, NAME, asleep, granted, hold, line, now, start_waiter};
use super::support::{RedisServer, simulated};
use super::{connect, leaves_nothing};

/// The holder crashed, so there was no message; and Java before 3.32 does not know the end of a hold that was renewed meanwhile. It would
/// sleep for five minutes, or for ever, and so would all waiters behind it.
#[test]
fn a_redisson_waiter_asleep_while_the_lock_is_free_is_woken_by_ours_behind_it() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let held = hold(&client).await;
        let mut ear = java.listen(&server, 1).await;
        java.lock(1, FIVE_MINUTES).await.expect("it is held");
        let (waiting, _) = start_waiter(&server, &client).await;
        let mut watch = client.admin().watch(NAME);
        assert_eq!(watch.next().await.expect("it looks").change, Change::Held);
        server.cmd(&["DEL", NAME]);
        // The message wakes sleeping waiters and has no other effect: no permit is left behind.
        assert_eq!(ear.message().await, b"1");
        let gone = watch.next().await.expect("it looks");
        assert_eq!(gone.owner, Some(held.owner()));
        assert_eq!(java.lock(1, FIVE_MINUTES).await, None);
        let taken = watch.next().await.expect("it looks");
        assert_eq!(taken.change, Change::Granted, "nobody else gave it back");
        ear.unsubscribe().await;
        assert_eq!(java.unlock(1).await, Some(true));
        granted(waiting).await.release().await.expect("it is ours");
        drop((watch, held));
        leaves_nothing(&server, client).await;
    });
}

/// The message that the lock is free went to a crashed waiter, and Java would sleep for as long as the holder might have held the lock.
#[test]
fn skipping_a_crashed_head_wakes_the_redisson_waiter_behind_it() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        let held = hold(&client).await;
        // A waiter of this library that has crashed and sends no further request.
        let (dead, over) = (java.owner(-1), now(&server));
        server.cmd(&["RPUSH", &queue(), &dead]);
        server.cmd(&["ZADD", &timeout(), &(over + 360_000).to_string(), &dead]);
        server.cmd(&["ZADD", ALIVE, &(over + 1500).to_string(), &dead]);
        let mut ear = java.listen(&server, 1).await;
        java.lock(1, FIVE_MINUTES).await.expect("it is held");
        let (waiting, _) = start_waiter(&server, &client).await;
        held.release().await.expect("it is ours");
        assert_eq!(line(&server)[0], dead, "it was told");
        assert_eq!(ear.message().await, b"0");
        assert_eq!(java.lock(1, FIVE_MINUTES).await, None);
        assert!(ear.rest(&server).await.is_empty(), "once is enough");
        ear.unsubscribe().await;
        assert_eq!(java.unlock(1).await, Some(true));
        granted(waiting).await.release().await.expect("it is ours");
        leaves_nothing(&server, client).await;
    });
}

/// Redisson's own waiters publish no message when they leave, and the waiter behind them sleeps on.
#[test]
fn a_head_that_gives_up_passes_a_free_lock_to_the_redisson_thread_behind_it() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (
            connect(&server).await,
            RedissonThreads::start(&server).await,
        );
        for impatient in [false, true] {
            assert_eq!(java.lock(1, FIVE_MINUTES).await, None);
            // The wait must not end before the waiter sleeps and another is queued behind it, but before it sends its next request, after
            // three seconds.
            let patience = Duration::from_millis(if impatient { 2500 } else { 60_000 });
            let lock = client.fair_lock(NAME);
            let first = asleep(&server, tokio::spawn(lock.acquire_timeout(patience))).await;
            let mut ear = java.listen(&server, 2).await;
            java.lock(2, FIVE_MINUTES).await.expect("it is held");
            // The hold ends without a message, so that only the leaving waiter can notify another.
            server.cmd(&["DEL", NAME]);
            if !impatient {
                first.abort();
            }
            assert_eq!(ear.message().await, b"0");
            assert_eq!(java.lock(2, FIVE_MINUTES).await, None);
            assert_eq!(java.unlock(2).await, Some(true));
            assert!(ear.rest(&server).await.is_empty(), "one message is enough");
            ear.unsubscribe().await;
        }
        leaves_nothing(&server, client).await;
    });
}
