//! The keys in Redis during a wait, and the messages when the lock is released.

use std::time::Duration;

use distlock::{Error, Lease, LostReason};

use super::fair::java::{FIVE_MINUTES, RedissonThreads, queue, timeout};
use super::fair::{ALIVE, NAME, assert_about, granted, hold, line, start_waiter, times};
use super::support::java::{Subscriber, channel};
use super::support::{RedisServer, eventually};
use super::{LEASE, PATIENCE, connect, leaves_nothing};

#[tokio::test]
async fn a_waiter_is_in_redissons_list_with_its_timeout_in_redissons_zset() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let held = hold(&client).await;
    assert_eq!(server.keys(), [NAME], "nobody waits yet");
    let (first, one) = start_waiter(&server, &client).await;
    let (second, two) = start_waiter(&server, &client).await;

    assert_eq!(server.keys(), [ALIVE, NAME, &queue(), &timeout()]);
    for (key, sort) in [
        (ALIVE, "zset"),
        (NAME, "hash"),
        (&queue(), "list"),
        (&timeout(), "zset"),
    ] {
        assert_eq!(server.query::<String>(&["TYPE", key]), sort, "{key}");
        assert!(server.pttl(key) > 0, "`{key}` has no end");
    }
    assert_eq!(line(&server), [one.clone(), two.clone()]);
    let times = times(&server);
    assert_eq!(times.len(), 2);
    // As if Redisson had sent the request, with its own five minutes.
    assert_about(times[&one], LEASE + FIVE_MINUTES);
    assert!(times[&two] >= times[&one], "{times:?}");

    // The new holder has the owner id of the waiter.
    held.release().await.expect("it is ours");
    let next = granted(first).await;
    assert_eq!(next.owner(), one);
    assert_eq!(server.hgetall(NAME)[&one], "1");
    assert_eq!(line(&server), [two]);
    next.release().await.expect("it is ours");
    let last = granted(second).await;
    assert_eq!(server.keys(), [NAME], "the keys go with the last who waits");
    last.release().await.expect("it is ours");
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn keys_and_channels_follow_redissons_brace_rule() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    for name in ["a{b}c", "foo{bar"] {
        let held = client.fair_lock(name).acquire().await.expect("it is free");
        let waiting = tokio::spawn(client.fair_lock(name).acquire());
        let [queue, timeout] =
            ["queue", "timeout"].map(|key| format!("redisson_lock_{key}:{name}"));
        eventually(PATIENCE, "it stands in line", async || {
            let keys = server.keys();
            keys.contains(&queue) && keys.contains(&timeout)
        })
        .await;
        let owner: String = server.query(&["LINDEX", &queue, "0"]);
        let channel = format!("redisson_lock__channel:{name}:{owner}");
        eventually(PATIENCE, "it listens", async || {
            server.pubsub_channels() == [channel.clone()]
        })
        .await;
        held.release().await.expect("it is ours");
        granted(waiting).await.release().await.expect("it is ours");
        assert!(server.keys().is_empty(), "{:?}", server.keys());
    }
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn a_release_notifies_only_the_redisson_thread_at_the_head() {
    let server = RedisServer::start();
    let (client, java) = (
        connect(&server).await,
        RedissonThreads::start(&server).await,
    );
    let held = hold(&client).await;
    let mut ears = Vec::new();
    for thread in [1, 2] {
        ears.push(java.listen(&server, thread).await);
        java.lock(thread, FIVE_MINUTES).await.expect("it is held");
    }
    let mut plain = Subscriber::start(&server, &channel(NAME)).await;
    held.release().await.expect("it is ours");
    assert_eq!(ears[0].rest(&server).await, [b"0"]);
    assert!(ears[1].rest(&server).await.is_empty());
    assert!(plain.rest(&server).await.is_empty());
    for thread in [1, 2] {
        assert_eq!(java.lock(thread, FIVE_MINUTES).await, None);
        assert_eq!(java.unlock(thread).await, Some(true));
    }
    // If the queue is empty, the message is for waiters of the plain lock of this name.
    hold(&client).await.release().await.expect("it is ours");
    assert_eq!(plain.rest(&server).await, [b"0"]);
    for ear in ears.into_iter().chain([plain]) {
        ear.unsubscribe().await;
    }
    leaves_nothing(&server, client).await;
}

/// Redisson's unlock reports success.
#[tokio::test]
async fn an_unlock_of_a_lost_fair_lock_reports_the_loss() {
    let server = RedisServer::start();
    let (client, java) = (
        connect(&server).await,
        RedissonThreads::start(&server).await,
    );
    for taken_over in [false, true] {
        let guard = hold(&client).await;
        server.cmd(&["DEL", NAME]);
        if taken_over {
            assert_eq!(java.lock(1, FIVE_MINUTES).await, None);
        }
        let released = guard.release().await;
        let Err(Error::Lost { reason, .. }) = released else {
            panic!("{released:?}");
        };
        let why = if taken_over {
            LostReason::TakenOver
        } else {
            LostReason::Removed
        };
        assert_eq!(reason, why);
    }
    assert_eq!(java.unlock(1).await, Some(true), "it is still Java's");
    let brief = client
        .fair_lock(NAME)
        .with_lease(Lease::Fixed(Duration::from_secs(2)));
    let guard = brief.acquire().await.expect("it is free");
    tokio::time::timeout(PATIENCE, guard.lost())
        .await
        .expect("it ends");
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    leaves_nothing(&server, client).await;
}

/// Redisson's nested lock sets its own lease, and its nested unlock another.
#[tokio::test]
async fn a_nested_hold_never_shortens_the_outer_ones_lease() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let lock = client.fair_lock(NAME).with_owner(&client.new_owner());
    let outer = lock.clone().with_lease(Lease::Fixed(LEASE * 10));
    let outer = outer.acquire().await.expect("it is free");
    let inner = lock.with_lease(Lease::Fixed(Duration::from_secs(1)));
    let inner = inner.acquire().await.expect("it is ours");
    assert_eq!(server.hgetall(NAME)[&outer.owner()], "2");
    assert_about(server.pttl(NAME), LEASE * 10);
    inner.release().await.expect("it is ours");
    assert_about(server.pttl(NAME), LEASE * 10);
    outer.release().await.expect("it is ours");
    leaves_nothing(&server, client).await;
}
