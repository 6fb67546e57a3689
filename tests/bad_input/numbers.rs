//! Latches and counting semaphores, on a server without memory and for a user with few rights.

use std::time::Duration;

use super::memory_limit::{assert_out_of_memory, fill};
use super::support::{RedisServer, eventually, rights, simulated};
use super::{IN_VAIN, PATIENCE, connect};

#[test]
fn a_server_out_of_memory_accepts_count_downs_and_released_permits() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let (latch, slots) = (client.latch("loaded"), client.counting_semaphore("slots"));
        latch.try_set(2).await.unwrap();
        slots.try_set(3).await.unwrap();
        slots.acquire(2).await.unwrap();
        // The script is cached then, so that it need not be loaded.
        other.latch("loaded too").delete().await.unwrap();
        assert!(!slots.acquire_timeout(5, IN_VAIN).await.unwrap());
        fill(&server);

        let nothing_new = client.latch("another").try_set(1).await.unwrap_err();
        assert_out_of_memory("another", nothing_new);
        let nothing_new = client
            .counting_semaphore("others")
            .try_set(1)
            .await
            .unwrap_err();
        assert_out_of_memory("others", nothing_new);
        assert!(
            !server
                .keys()
                .iter()
                .any(|key| key.contains("other") && !key.contains("distlock"))
        );

        assert_eq!(latch.count_down().await.unwrap(), 1);
        slots.release(2).await.unwrap();
        assert_eq!(slots.available().await.unwrap(), 3);
        let waiting = tokio::spawn(async move { other.latch("loaded").wait().await });
        assert_eq!(latch.count_down().await.unwrap(), 0);
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(slots.drain().await.unwrap(), 3);
    });
}

#[test]
fn a_user_with_the_rights_of_counters_can_count() {
    simulated(async || {
        let server = RedisServer::start();
        let commands = [rights::commands(), rights::of_counting()].concat();
        let mut user = vec!["ACL", "SETUSER", "counts", "on", ">secret", "resetkeys"];
        user.extend(["~loaded", "~slots", "resetchannels", "-@all"]);
        user.extend(commands);
        server.cmd(&user);
        let url = server.url().replace("redis://", "redis://counts:secret@");
        let (client, other) = (connect(&url).await, connect(&url).await);
        let (latch, slots) = (client.latch("loaded"), client.counting_semaphore("slots"));
        assert!(latch.try_set(1).await.unwrap());
        let waiting = tokio::spawn({
            let latch = other.latch("loaded");
            async move { latch.wait().await }
        });
        eventually(PATIENCE, "it listens", async || {
            !server.pubsub_channels().is_empty()
        })
        .await;
        assert_eq!(latch.count_down().await.unwrap(), 0);
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(!latch.delete().await.unwrap());

        assert!(slots.try_set(2).await.unwrap());
        slots.acquire(1).await.unwrap();
        // The waiter joins the queue, and leaves it.
        assert!(!slots.acquire_timeout(2, IN_VAIN).await.unwrap());
        drop(tokio::time::timeout(IN_VAIN, slots.acquire(2)).await);
        eventually(PATIENCE, "it has left", async || {
            other
                .counting_semaphore("slots")
                .try_acquire(1)
                .await
                .unwrap()
        })
        .await;
        slots.release(2).await.unwrap();
        slots.add(-1).await.unwrap();
        slots.set_available(4).await.unwrap();
        assert_eq!(slots.drain().await.unwrap(), 4);
        assert!(slots.delete().await.unwrap());
        // Lost permits are put back.
        slots.try_set(2).await.unwrap();
        for _ in 0..20 {
            let taken = slots.acquire(2);
            if let Ok(taken) = tokio::time::timeout(Duration::from_micros(200), taken).await {
                taken.unwrap();
                slots.release(2).await.unwrap();
            }
            eventually(PATIENCE, "they are back", async || {
                slots.available().await.unwrap() == 2
            })
            .await;
        }
        client.close().await.unwrap();
    });
}

/// A latch never has a count below one.
#[test]
fn counting_down_leaves_a_number_that_is_no_latch_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        for number in ["0", "-5"] {
            server.cmd(&["SET", "balance", number]);
            let left = client.latch("balance").count_down().await;
            assert_eq!(left.expect("it is up"), 0);
            assert_eq!(server.query::<String>(&["GET", "balance"]), number);
        }
    });
}
