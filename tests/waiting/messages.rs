//! Messages are hints: each wakes the right waiter at once and costs one subscription; losing one costs a bounded time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, Lease};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{
    LONGEST_SLEEP, ROUND_TRIP, channel, connect, ended, granted, hold_as_stranger, long, release,
    release_as_stranger, until_listeners,
};
use crate::support::{PATIENCE, RedisServer, eventually, simulated};

#[test]
fn a_message_wakes_a_waiter_at_once_though_the_lease_is_long() {
    simulated(async || {
        let server = RedisServer::start();
        let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
        for _ in 0..15 {
            let held = long(holder.lock("message")).acquire().await.unwrap();
            let waiting = tokio::spawn(long(waiter.lock("message")).acquire());
            until_listeners(&server, "message", 1).await;
            let released = Instant::now();
            release(held).await;
            let guard = granted(waiting).await;
            // Without a message the waiter would sleep for two seconds.
            assert!(released.elapsed() < ROUND_TRIP, "{:?}", released.elapsed());
            release(guard).await;
            until_listeners(&server, "message", 0).await;
        }
    });
}

#[test]
fn redissons_message_wakes_a_waiter_at_once() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        for (name, channel) in [
            ("java", channel("java")),
            ("ja{v}a", "redisson_lock__channel:ja{v}a".to_owned()),
        ] {
            hold_as_stranger(&server, name, Duration::from_secs(60));
            let waiting = tokio::spawn(client.lock(name).acquire());
            eventually(PATIENCE, "it listens", async || {
                server.pubsub_channels() == [channel.clone()]
            })
            .await;
            server.cmd(&["DEL", name]);
            server.cmd(&["PUBLISH", &channel, "0"]);
            let released = Instant::now();
            release(granted(waiting).await).await;
            assert!(released.elapsed() < ROUND_TRIP, "{:?}", released.elapsed());
        }
        eventually(PATIENCE, "nobody listens any more", async || {
            server.pubsub_channels().is_empty()
        })
        .await;
    });
}

#[test]
fn a_client_subscribes_once_per_name_for_any_number_of_waiters() {
    simulated(async || {
        let server = RedisServer::start();
        for name in ["first", "second"] {
            hold_as_stranger(&server, name, Duration::from_secs(60));
        }
        let mut waiting = JoinSet::new();
        for others in [10, 0, 0] {
            let client = connect(&server.url()).await;
            for number in 0..40 + others {
                let name = if number < 40 { "first" } else { "second" };
                waiting.spawn(client.lock(name).acquire());
            }
        }
        until_listeners(&server, "first", 3).await;
        until_listeners(&server, "second", 1).await;
        // A second connection would be counted here, a second subscription of the same one below.
        let list: String = server.query(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        assert_eq!(list.lines().count(), 3, "{list}");
        // One command may subscribe to both names.
        let subscribed = server.commandstats("subscribe");
        assert!(
            subscribed <= 4,
            "{subscribed} for three clients and two names"
        );

        for name in ["first", "second"] {
            release_as_stranger(&server, name);
        }
        let mut served = 0;
        while let Some(granted) = timeout(PATIENCE, waiting.join_next()).await.unwrap() {
            release(granted.unwrap().unwrap()).await;
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
fn cancelled_waiters_unsubscribe() {
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
        until_listeners(&server, "cancelled", 0).await;
    });
}

/// The longest time for which the lock was free.
#[derive(Default)]
struct Gaps {
    free_since: Option<Instant>,
    longest: Duration,
    grants: u64,
}

impl Gaps {
    fn granted(&mut self) {
        self.grants += 1;
        if let Some(since) = self.free_since.take() {
            self.longest = self.longest.max(since.elapsed());
        }
    }

    fn releasing(&mut self) {
        self.free_since = Some(Instant::now());
    }
}

#[test]
fn no_waiter_stalls_for_a_second_while_subscriber_connections_are_killed() {
    simulated(async || {
        let server = RedisServer::start();
        let gaps = Arc::new(Mutex::new(Gaps::default()));
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let client = connect(&server.url()).await;
            for _ in 0..50 {
                let (client, gaps, over) = (client.clone(), gaps.clone(), over.clone());
                tasks.spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        let guard = long(client.lock("busy")).acquire().await.unwrap();
                        gaps.lock().unwrap().granted();
                        sleep(Duration::from_millis(1)).await;
                        gaps.lock().unwrap().releasing();
                        release(guard).await;
                    }
                });
            }
        }
        // No waiter of its own client is behind this one: other clients must be notified of its releases, and all of them have just lost
        // their connections.
        let alone = connect(&server.url()).await;
        let (mut killed, mut rounds, begun) = (0, 0, Instant::now());
        while begun.elapsed() < Duration::from_secs(8) {
            let guard = long(alone.lock("busy")).acquire().await.unwrap();
            gaps.lock().unwrap().granted();
            killed += server.kill_pubsub_clients();
            gaps.lock().unwrap().releasing();
            release(guard).await;
            rounds += 1;
            for _ in 0..5 {
                sleep(Duration::from_millis(100)).await;
                killed += server.kill_pubsub_clients();
            }
        }
        over.store(true, Ordering::Relaxed);
        ended(tasks).await;
        let (longest, grants) = {
            let gaps = gaps.lock().unwrap();
            (gaps.longest, gaps.grants)
        };
        eprintln!("{grants} grants, {killed} killed, {rounds} before a release; {longest:?} idle");
        assert!(killed >= 40 && rounds >= 5 && grants >= 200);
        assert!(longest < Duration::from_secs(1), "{longest:?}");
        eventually(PATIENCE, "nobody listens any more", async || {
            server.pubsub_channels().is_empty()
        })
        .await;
        assert_eq!(server.keys(), Vec::<String>::new());
    });
}

#[test]
fn a_server_that_forgets_its_scripts_surfaces_no_error() {
    simulated(async || {
        let server = RedisServer::start();
        let over = Arc::new(AtomicBool::new(false));
        let (mut tasks, mut kept) = (JoinSet::new(), Vec::new());
        for number in 0..2 {
            let client = connect(&server.url()).await;
            let lease = Lease::KeepAlive(Duration::from_secs(6));
            let lock = client.lock(format!("kept:{number}")).with_lease(lease);
            kept.push(lock.acquire().await.unwrap());
            for task in 0..8 {
                let (client, over) = (client.clone(), over.clone());
                tasks.spawn(async move {
                    let mut cycles = 0;
                    while !over.load(Ordering::Relaxed) {
                        cycles += 1;
                        cycle(&client, &format!("name:{}", task % 5), cycles).await;
                    }
                    cycles
                });
            }
        }
        let (mut flushes, begun) = (0, Instant::now());
        let before = server.commandstats("eval");
        // The locks that are kept come to depend on their renewals in this time.
        while begun.elapsed() < Duration::from_secs(9) {
            server.script_flush();
            flushes += 1;
            sleep(Duration::from_millis(150)).await;
        }
        over.store(true, Ordering::Relaxed);
        let cycles: u64 = ended(tasks).await.into_iter().sum();
        let by_text = server.commandstats("eval") - before;
        eprintln!("{cycles} cycles, {flushes} flushes, {by_text} scripts sent by their text");
        assert!(by_text >= flushes && cycles > 500);
        for guard in kept {
            release(guard).await;
        }
    });
}

/// Runs everything that is a script: acquire, re-entry, both releases, inspection.
async fn cycle(client: &Client, name: &str, number: u64) {
    let lock = client.lock(name).with_owner(&client.new_owner());
    let outer = lock.acquire().await.expect("an acquire needs no script");
    let inner = lock.try_acquire().await.expect("nor does a re-entry");
    let seen = client.admin().inspect(name).await.expect("nor a look");
    assert_eq!(seen.expect("it is held").holders[0].hold_count, 2);
    release(inner.expect("the owner may enter again")).await;
    if number.is_multiple_of(3) {
        drop(outer);
    } else {
        release(outer).await;
    }
}

#[test]
fn a_key_that_vanishes_without_a_message_costs_at_most_the_longest_sleep() {
    simulated(async || {
        let server = RedisServer::start();
        let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
        for part in 0..10 {
            let held = long(holder.lock("vanishes")).acquire().await.unwrap();
            let waiting = tokio::spawn(long(waiter.lock("vanishes")).acquire());
            until_listeners(&server, "vanishes", 1).await;
            sleep(LONGEST_SLEEP * part / 10).await;
            assert!(!waiting.is_finished());
            server.cmd(&["DEL", "vanishes"]);
            let vanished = Instant::now();
            let guard = granted(waiting).await;
            let took = vanished.elapsed();
            assert!(took < LONGEST_SLEEP + ROUND_TRIP, "{took:?}");
            release(guard).await;
            drop(held);
        }
    });
}

#[test]
fn a_latch_that_opens_without_a_message_costs_at_most_the_longest_sleep() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        for part in 0..10 {
            assert!(client.latch("opens").try_set(1).await.unwrap());
            let latch = client.latch("opens");
            let waiting = tokio::spawn(async move { latch.wait().await });
            until_a_channel(&server).await;
            sleep(LONGEST_SLEEP * part / 10).await;
            assert!(!waiting.is_finished());
            server.cmd(&["DEL", "opens"]);
            let opened = Instant::now();
            waiting.await.unwrap().unwrap();
            let took = opened.elapsed();
            assert!(took < LONGEST_SLEEP + ROUND_TRIP, "{took:?}");
        }
    });
}

#[test]
fn permits_that_come_without_a_message_cost_at_most_the_longest_sleep() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        client.counting_semaphore("come").try_set(0).await.unwrap();
        for part in 0..10 {
            let permits = 1 + part % 2;
            let semaphore = client.counting_semaphore("come");
            let waiting = tokio::spawn(async move { semaphore.acquire(permits).await });
            until_a_channel(&server).await;
            sleep(LONGEST_SLEEP * part / 10).await;
            assert!(!waiting.is_finished());
            server.cmd(&["INCRBY", "come", &permits.to_string()]);
            let came = Instant::now();
            waiting.await.unwrap().unwrap();
            let took = came.elapsed();
            assert!(took < LONGEST_SLEEP + ROUND_TRIP, "{took:?}");
        }
    });
}

/// Waits until a client has subscribed to a channel.
async fn until_a_channel(server: &RedisServer) {
    eventually(PATIENCE, "a channel", async || {
        let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS"]);
        !channels.is_empty()
    })
    .await;
}

#[test]
fn a_waiter_polls_again_shortly_after_the_lease_of_the_holder() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        for ttl in [1, 150, 400, 700, 900, 1500].map(Duration::from_millis) {
            let begun = Instant::now();
            hold_as_stranger(&server, "expires", ttl);
            let guard = client.lock("expires").acquire().await.unwrap();
            let took = begun.elapsed();
            assert!(took >= ttl && took < ttl + ROUND_TRIP, "{ttl:?}: {took:?}");
            release(guard).await;
        }
    });
}
