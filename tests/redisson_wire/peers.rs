//! One lock, a Java client and ours.

use std::time::Duration;

use distlock::{Error, Lease, LostReason};
use tokio::time::Instant;

use super::support::java::{Java, Subscriber, channel};
use super::support::{RedisServer, eventually, simulated};
use super::{IN_VAIN, LEASE, PATIENCE, assert_just_set, connect, hold, leaves_nothing};

#[test]
fn java_is_refused_what_we_hold_and_told_how_long() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let guard = hold(&client, "order").await;
        let before = server.hgetall("order");
        let pttl = java.lock("order", 47, "1000").await.expect("it is held");
        assert_just_set(pttl, LEASE);
        assert_eq!(server.hgetall("order"), before);
        guard.release().await.unwrap();
        assert_eq!(java.lock("order", 47, "1000").await, None);
        assert_eq!(java.unlock("order", 47).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn java_cannot_unlock_what_we_hold() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let mut ear = Subscriber::start(&server, &channel("order")).await;
        let guard = hold(&client, "order").await;
        let before = server.hgetall("order");
        assert_eq!(java.unlock("order", 47).await, None);
        assert_eq!(server.hgetall("order"), before);
        assert!(ear.rest(&server).await.is_empty());
        guard.release().await.unwrap();
        assert_eq!(ear.rest(&server).await, [b"0"]);
        ear.unsubscribe().await;
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn we_are_refused_what_any_thread_of_javas_holds() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let lock = client.lock("order");
        for thread in [47, 0, -1, i64::MIN, i64::MAX] {
            assert_eq!(java.lock("order", thread, "60000").await, None);
            let before = server.hgetall("order");
            assert!(lock.try_acquire().await.unwrap().is_none());
            assert!(lock.acquire_timeout(IN_VAIN).await.unwrap().is_none());
            assert_eq!(server.hgetall("order"), before);
            assert_just_set(server.pttl("order"), LEASE);
            assert_eq!(java.unlock("order", thread).await, Some(true));
            let guard = lock.try_acquire().await.unwrap().expect("free again");
            guard.release().await.unwrap();
        }
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn javas_unlock_wakes_our_waiter_at_once() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        for _ in 0..5 {
            assert_eq!(java.lock("order", 47, "60000").await, None);
            assert_eq!(java.lock("order", 47, "60000").await, None);
            let asked = server.commandstats("evalsha");
            let waiter = tokio::spawn(client.lock("order").acquire());
            // It asks, listens and asks again; Java's scripts go by EVAL. From then on it sleeps, for two
            // seconds if nobody wakes it.
            eventually(PATIENCE, "it sleeps", async || {
                server.pubsub_channels() == [channel("order")]
                    && server.commandstats("evalsha") >= asked + 2
            })
            .await;
            assert_eq!(java.unlock("order", 47).await, Some(false));
            assert!(!waiter.is_finished());
            let unlocked = Instant::now();
            assert_eq!(java.unlock("order", 47).await, Some(true));
            let guard = waiter.await.unwrap().unwrap();
            let took = unlocked.elapsed();
            assert!(took < Duration::from_secs(1), "{took:?}");
            guard.release().await.unwrap();
        }
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn every_release_of_ours_wakes_a_java_waiter() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let mut ear = Subscriber::start(&server, &channel("order")).await;
        for how in ["release", "drop", "force", "close", "max hold"] {
            let closing = connect(&server).await;
            let lock = closing.lock("order");
            let lock = match how {
                "max hold" => lock.with_max_hold(Duration::from_secs(3)),
                _ => lock,
            };
            let guard = lock.try_acquire().await.unwrap().expect("free");
            assert!(java.lock("order", 47, "60000").await.is_some(), "{how}");
            match how {
                "release" => guard.release().await.unwrap(),
                "drop" => drop(guard),
                "force" => assert!(client.admin().force_release("order").await.unwrap()),
                "close" => closing.close().await.unwrap(),
                _ => {}
            }
            assert_eq!(ear.message().await, b"0", "{how}");
            assert_eq!(java.lock("order", 47, "60000").await, None, "{how}");
            assert_eq!(java.unlock("order", 47).await, Some(true));
            // Java's own.
            assert_eq!(ear.message().await, b"0", "{how}");
            closing.close().await.unwrap();
            assert!(ear.rest(&server).await.is_empty(), "{how}");
        }
        ear.unsubscribe().await;
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn inspect_shows_who_of_java_holds_it_and_how_often() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let admin = client.admin();
        assert!(admin.inspect("order").await.unwrap().is_none());
        for count in 1..=3 {
            assert_eq!(java.lock("order", -5, "60000").await, None);
            let found = admin.inspect("order").await.unwrap().expect("held");
            assert_eq!(found.name, "order");
            assert_eq!(found.holders.len(), 1);
            assert_eq!(found.holders[0].owner, java.owner(-5));
            assert_eq!(found.holders[0].hold_count, count);
            assert_eq!(found.holders[0].label, None);
            let ttl = found.ttl.expect("it has an end").as_millis();
            assert_just_set(i64::try_from(ttl).unwrap(), LEASE);
            assert_eq!(admin.list("*").await.unwrap().len(), 1);
        }
        for freed in [false, false, true] {
            assert_eq!(java.unlock("order", -5).await, Some(freed));
        }
        assert!(admin.inspect("order").await.unwrap().is_none());
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn javas_watchdog_extends_its_own_locks_and_not_ours() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let lease = Lease::Fixed(Duration::from_secs(20));
        let lock = client.lock("ours").with_lease(lease);
        let guard = lock.acquire().await.unwrap();
        assert_eq!(java.lock("its", 47, "20000").await, None);
        assert_eq!(java.renew(&[("ours", 47), ("its", 47)]).await, [0, 1]);
        assert_just_set(server.pttl("ours"), Duration::from_secs(20));
        assert_just_set(server.pttl("its"), Duration::from_secs(30));
        guard.release().await.unwrap();
        assert_eq!(java.renew(&[("ours", 47)]).await, [0]);
        assert_eq!(server.keys(), ["its"]);
        assert_eq!(java.unlock("its", 47).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn our_watchdog_does_not_extend_what_java_took_from_us() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        // Renewed after two seconds, while Java has the lock for less long than we would make it.
        let lease = Lease::KeepAlive(Duration::from_secs(6));
        let lock = client.lock("order").with_lease(lease);
        let guard = lock.acquire().await.unwrap();
        assert!(java.force_unlock("order").await);
        assert_eq!(java.lock("order", 47, "4500").await, None);
        let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
        let lost = lost.expect("the next renewal tells").expect("not released");
        assert_eq!(lost.reason, LostReason::TakenOver);
        assert!(!guard.is_held());
        assert!(server.pttl("order") <= 4500);
        // Java's hold is Java's, also when we give back what we have lost.
        assert_eq!(java.lock("order", 47, "60000").await, None);
        let released = guard.release().await;
        assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
        assert_eq!(
            server.hgetall("order").into_keys().next(),
            Some(java.owner(47))
        );
        assert!(java.force_unlock("order").await);
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn force_release_frees_javas_lock_and_publishes_0() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let mut ear = Subscriber::start(&server, &channel("order")).await;
        assert!(!client.admin().force_release("order").await.unwrap());
        assert!(ear.rest(&server).await.is_empty());
        for _ in 0..2 {
            assert_eq!(java.lock("order", -47, "60000").await, None);
        }
        assert_eq!(server.keys(), ["order"]);
        assert!(client.admin().force_release("order").await.unwrap());
        assert!(server.keys().is_empty());
        assert_eq!(ear.rest(&server).await, [b"0"]);
        assert_eq!(java.unlock("order", -47).await, None);
        ear.unsubscribe().await;
        leaves_nothing(&server, client).await;
    });
}
