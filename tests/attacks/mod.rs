//! Attacks that once succeeded, each reproduced as it was made, on the store in memory and on a real server. Attacks on a simulated server
//! are in `simulated.rs`.
#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use distlock::{Client, Error, Lease};

use crate::support::{RedisServer, eventually};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Upper bound for any wait on a busy machine; only a failure waits this long.
const PATIENCE: Duration = ms(120_000);

async fn connect(url: &str) -> Client {
    let builder = Client::builder(url).command_timeout(PATIENCE);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the store is there")
}

/// Waiters that were granted the lock in memory were subtracted from the number of waiters twice.
#[tokio::test(flavor = "multi_thread")]
async fn the_shown_number_of_waiters_is_exact() {
    let client = connect("memory:").await;
    let mut held = client.lock("x").acquire().await.expect("it is free");
    let (sender, mut granted) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..20 {
        let (lock, sender) = (client.lock("x"), sender.clone());
        tokio::spawn(async move { sender.send(lock.acquire().await) });
    }
    for waiting in (14..=20).rev() {
        eventually(PATIENCE, "those who wait are shown", async || {
            format!("{client:?}").contains(&format!("waiting: {waiting}"))
        })
        .await;
        held.release().await.expect("it is ours");
        let next = granted.recv().await.expect("some wait");
        held = next.expect("it is free");
    }
}

/// The acquire in memory had to yield to other tasks for longer than its lease.
#[tokio::test(start_paused = true)]
async fn a_grant_in_memory_after_a_long_pause_is_still_valid() {
    let client = connect("memory:").await;
    let lease = Lease::Fixed(ms(50));
    let mut acquiring = Box::pin(client.lock("stock").with_lease(lease).acquire());
    let paused = poll_fn(|cx| {
        // This poll has used up the cooperative budget of its task.
        while pin!(tokio::task::coop::consume_budget())
            .poll(cx)
            .is_ready()
        {}
        Poll::Ready(acquiring.as_mut().poll(cx).is_pending())
    });
    assert!(paused.await, "it was answered without a pause");
    tokio::time::advance(ms(200)).await;
    let guard = acquiring.await.unwrap();
    assert!(guard.is_held(), "granted, and over before it was seen");
}

/// A client that requests the lock again and again must not keep the holder from ever releasing it.
#[tokio::test]
async fn polling_in_memory_without_a_pause_starves_no_other_task() {
    let client = connect("memory:").await;
    let guard = client.lock("stock").acquire().await.unwrap();
    let holder = tokio::spawn(async move {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        guard.release().await.unwrap();
    });
    let asking = async { while client.lock("stock").try_acquire().await.unwrap().is_none() {} };
    let asking = tokio::time::timeout(PATIENCE, asking).await;
    asking.expect("the holder gets its turn");
    holder.await.unwrap();
}

/// A dropped guard waited for a slot that had gone to a task of the same thread, which the guard was blocking.
#[test]
fn nested_guards_that_are_dropped_in_many_tasks_do_not_hang() {
    let (done, over) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(4).enable_all().build();
        runtime.expect("threads can be had").block_on(async {
            let client = connect("memory:").await;
            let lock = client.lock("x").with_owner(&client.new_owner());
            let outer = lock.acquire().await.expect("it is free");
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..4 {
                let lock = lock.clone();
                tasks.spawn(async move {
                    for round in 0..5_000 {
                        drop(lock.acquire().await.expect("its owner holds it"));
                        if round % 64 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                });
            }
            tasks.join_all().await;
            assert_eq!(outer.hold_count(), 1);
            let seen = client.admin().inspect("x").await.expect("it answers");
            assert_eq!(seen.expect("it is held").holders[0].hold_count, 1);
        });
        done.send(()).expect("somebody waits below");
    });
    over.recv_timeout(3 * PATIENCE).expect("it does not hang");
}

/// After a reconnect one channel was refused, and with it all other subscriptions.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_denied_after_a_reconnect_leaves_the_other_subscriptions_working() {
    let server = RedisServer::start();
    server.cmd(&["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all"]);
    let url = server.url().replace("redis://", "redis://u:p@");
    let (a, b) = (connect(&server.url()).await, connect(&url).await);
    let first = a.lock("a").acquire().await.expect("it is free");
    let _second = a.lock("b").acquire().await.expect("it is free");
    let allowed = tokio::spawn(b.lock("a").acquire());
    let refused = tokio::spawn(b.lock("b").acquire());
    eventually(PATIENCE, "both listen", async || {
        server.pubsub_channels().len() == 2
    })
    .await;
    // The server closes the connections of subscribers that are no longer allowed to use their channel.
    let only = "&redisson_lock__channel:{a}";
    server.cmd(&["ACL", "SETUSER", "u", "resetchannels", only]);
    let refused = tokio::time::timeout(PATIENCE, refused).await;
    let refused = refused.expect("it is told").expect("no panic");
    assert!(
        matches!(refused, Err(Error::PermissionDenied { .. })),
        "{refused:?}"
    );
    eventually(PATIENCE, "the other listens again", async || {
        server.pubsub_channels().len() == 1
    })
    .await;
    first.release().await.expect("it is ours");
    let got = tokio::time::timeout(PATIENCE, allowed).await;
    assert!(got.expect("its turn").expect("no panic").is_ok());
}
