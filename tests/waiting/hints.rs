//! Messages are worth having: they wake the right one at once, and cost one subscription.

use std::time::Duration;
use tokio::time::Instant;

use tokio::task::JoinSet;

use super::support::{RedisServer, eventually, paced_timeout, simulated};
use super::{
    PATIENCE, connect, give_back, hold_as_stranger, listeners, long, release_as_stranger,
    until_listeners,
};

#[test]
fn a_message_wakes_a_waiter_at_once_though_the_lease_is_long() {
    simulated(async || {
        let server = RedisServer::start();
        let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
        let mut took = Vec::new();
        for _ in 0..15 {
            let held = long(holder.lock("message")).acquire().await.unwrap();
            let lock = long(waiter.lock("message"));
            let waiting = tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                (guard, Instant::now())
            });
            until_listeners(&server, "message", 1).await;
            let released = Instant::now();
            give_back(held).await;
            let (guard, granted) = tokio::time::timeout(PATIENCE, waiting)
                .await
                .unwrap()
                .unwrap();
            took.push(granted - released);
            give_back(guard).await;
            until_listeners(&server, "message", 0).await;
        }
        took.sort();
        let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
        eprintln!("woken after {median:?} (median), {longest:?} (longest)");
        // Without a message it would sleep for two seconds, every time.
        assert!(median < Duration::from_secs(1), "{median:?}");
    });
}

#[test]
fn redissons_message_wakes_a_waiter_at_once() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        for name in ["java", "ja{v}a"] {
            let channel = if name.contains('{') {
                format!("redisson_lock__channel:{name}")
            } else {
                super::channel(name)
            };
            hold_as_stranger(&server, name, Duration::from_secs(60));
            let waiting = tokio::spawn(client.lock(name).acquire());
            eventually(
                PATIENCE,
                "it listens where Redisson publishes",
                async || server.pubsub_channels() == [channel.clone()],
            )
            .await;
            server.cmd(&["DEL", name]);
            server.cmd(&["PUBLISH", &channel, "0"]);
            // Without a message it would sleep for two seconds.
            let woken = paced_timeout(Duration::from_millis(1500), waiting).await;
            let (guard, _) = woken.expect("it is woken by the message");
            give_back(guard.unwrap().unwrap()).await;
            eventually(PATIENCE, "it listens no longer", async || {
                server.pubsub_channels().is_empty()
            })
            .await;
        }
    });
}

#[test]
fn a_client_listens_once_per_name_however_many_wait() {
    simulated(async || {
        let server = RedisServer::start();
        for name in ["first", "second"] {
            hold_as_stranger(&server, name, Duration::from_secs(60));
        }
        let mut waiting = JoinSet::new();
        let mut clients = Vec::new();
        for number in 0..3 {
            let client = connect(&server.url()).await;
            for _ in 0..40 {
                waiting.spawn(client.lock("first").acquire());
            }
            if number == 0 {
                for _ in 0..10 {
                    waiting.spawn(client.lock("second").acquire());
                }
            }
            clients.push(client);
        }
        until_listeners(&server, "first", 3).await;
        until_listeners(&server, "second", 1).await;
        // A second connection would be counted here, a second subscription of the same one below.
        let list: String = server.query(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        assert_eq!(list.lines().count(), 3, "{list}");
        let subscribed = server.commandstats("subscribe");
        assert!(
            subscribed <= 4,
            "{subscribed} for three clients and two names"
        );

        for name in ["first", "second"] {
            release_as_stranger(&server, name);
        }
        let mut served = 0;
        while let Some(granted) = tokio::time::timeout(PATIENCE, waiting.join_next())
            .await
            .unwrap()
        {
            give_back(granted.unwrap().unwrap()).await;
            served += 1;
        }
        assert_eq!(served, 130);
        eventually(PATIENCE, "nobody listens any more", async || {
            server.pubsub_channels().is_empty()
        })
        .await;
    });
}

#[test]
fn cancelled_waiters_stop_listening() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        hold_as_stranger(&server, "cancelled", Duration::from_secs(60));
        let mut waiting = JoinSet::new();
        for _ in 0..20 {
            waiting.spawn(client.lock("cancelled").acquire());
        }
        until_listeners(&server, "cancelled", 1).await;
        waiting.shutdown().await;
        eventually(PATIENCE, "nobody listens any more", async || {
            listeners(&server, "cancelled") == 0
        })
        .await;
    });
}
