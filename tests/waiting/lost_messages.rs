//! Messages are hints: losing one costs a bounded time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

use distlock::{Client, Lease};
use tokio::task::JoinSet;

use super::support::{Pace, RedisServer, eventually, paced, simulated};
use super::{PATIENCE, SLACK, connect, give_back, hold_as_stranger, long, until_listeners};

/// When the lock was last given back, and the longest it then lay idle, in the machine's time.
struct Gaps {
    pace: Pace,
    free_since: Option<Duration>,
    longest: Duration,
    grants: u64,
}

impl Gaps {
    fn start() -> Self {
        Self {
            pace: Pace::start(),
            free_since: None,
            longest: Duration::ZERO,
            grants: 0,
        }
    }

    fn granted(&mut self) {
        self.grants += 1;
        if let Some(since) = self.free_since.take() {
            self.longest = self.longest.max(self.pace.now() - since);
        }
    }

    fn releasing(&mut self) {
        self.free_since = Some(self.pace.now());
    }
}

#[test]
fn nobody_stalls_for_a_second_while_listening_connections_are_killed() {
    simulated(async || {
        let server = Arc::new(RedisServer::start());
        let gaps = Arc::new(Mutex::new(Gaps::start()));
        let over = Arc::new(AtomicBool::new(false));
        let killed = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let client = connect(&server.url()).await;
            for _ in 0..50 {
                let (client, gaps, over) = (client.clone(), gaps.clone(), over.clone());
                tasks.spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        let guard = long(client.lock("busy")).acquire().await.unwrap();
                        gaps.lock().unwrap().granted();
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        gaps.lock().unwrap().releasing();
                        give_back(guard).await;
                    }
                });
            }
        }
        // Nobody of its own waits behind this one: the others must hear of its releases, and all of them
        // have just lost their connection.
        let alone = connect(&server.url()).await;
        let rounds = Arc::new(AtomicU64::new(0));
        let alone = {
            let (server, gaps, over) = (server.clone(), gaps.clone(), over.clone());
            let (killed, rounds) = (killed.clone(), rounds.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = long(alone.lock("busy")).acquire().await.unwrap();
                    gaps.lock().unwrap().granted();
                    killed.fetch_add(server.kill_pubsub_clients(), Ordering::Relaxed);
                    gaps.lock().unwrap().releasing();
                    give_back(guard).await;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let begun = Instant::now();
        // For longer on a machine too busy to show much.
        let hardly = || {
            let [killed, rounds] = [&killed, &rounds].map(|count| count.load(Ordering::Relaxed));
            killed < 40 || rounds < 3 || gaps.lock().unwrap().grants < 200
        };
        while begun.elapsed() < Duration::from_secs(3) || (begun.elapsed() < PATIENCE && hardly()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            killed.fetch_add(server.kill_pubsub_clients(), Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
        tokio::time::timeout(PATIENCE, alone)
            .await
            .unwrap()
            .unwrap();
        while let Some(ended) = tokio::time::timeout(PATIENCE, tasks.join_next())
            .await
            .unwrap()
        {
            ended.unwrap();
        }
        let (longest, grants) = {
            let gaps = gaps.lock().unwrap();
            (gaps.longest, gaps.grants)
        };
        let [killed, rounds] = [killed, rounds].map(|count| count.load(Ordering::Relaxed));
        eprintln!(
            "{grants} grants, {killed} listening connections killed, {rounds} times right before a \
             release; the lock lay idle for at most {longest:?}"
        );
        assert!(
            killed >= 40,
            "only {killed} connections were there to be killed"
        );
        assert!(rounds >= 3, "only {rounds} releases depended on a message");
        assert!(grants >= 200, "only {grants} grants");
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
        let cycles = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let mut kept = Vec::new();
        for number in 0..2 {
            let client = connect(&server.url()).await;
            let renewed = client
                .lock(format!("kept:{number}"))
                .with_lease(Lease::KeepAlive(Duration::from_secs(6)));
            kept.push(renewed.acquire().await.unwrap());
            for task in 0..8 {
                let (client, over, cycles) = (client.clone(), over.clone(), cycles.clone());
                tasks.spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        cycle(&client, &format!("name:{}", task % 5)).await;
                        cycles.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        let begun = Instant::now();
        let mut flushes = 0;
        let before = server.commandstats("eval");
        // Long enough for the locks that are kept to depend on their renewals.
        while begun.elapsed() < Duration::from_millis(6500) || cycles.load(Ordering::Relaxed) <= 100
        {
            let noticed = server.commandstats("eval");
            server.script_flush();
            flushes += 1;
            eventually(PATIENCE, "the flush is noticed", async || {
                server.commandstats("eval") > noticed
            })
            .await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        over.store(true, Ordering::Relaxed);
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let by_text = server.commandstats("eval") - before;
        let cycles = cycles.load(Ordering::Relaxed);
        eprintln!("{cycles} cycles, {flushes} flushes, {by_text} scripts sent again by their text");
        assert!(by_text >= flushes, "the flushes were never noticed");
        assert!(cycles > 100, "only {cycles} cycles");
        for guard in kept {
            // Renewed several times by now, or gone.
            assert!(guard.is_held());
            give_back(guard).await;
        }
    });
}

/// Everything that runs a script: acquire, re-entry, both releases, inspection.
async fn cycle(client: &Client, name: &str) {
    let me = client.new_owner();
    let lock = client.lock(name).with_owner(&me);
    let outer = lock
        .acquire()
        .await
        .expect("an acquire needs no known script");
    let inner = lock.try_acquire().await.expect("nor does a re-entry");
    let seen = client.admin().inspect(name).await.expect("nor a look");
    assert_eq!(seen.expect("it is held").holders[0].hold_count, 2);
    let inner = inner.expect("the owner may enter again");
    inner.release().await.expect("nor a partial release");
    if cycle_number().is_multiple_of(3) {
        drop(outer);
    } else {
        outer.release().await.expect("nor a release");
    }
}

fn cycle_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

#[test]
fn a_key_that_vanishes_without_a_message_costs_at_most_the_longest_sleep() {
    simulated(async || {
        let server = RedisServer::start();
        let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
        let held = long(holder.lock("vanishes")).acquire().await.unwrap();
        let lock = long(waiter.lock("vanishes"));
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        until_listeners(&server, "vanishes", 1).await;
        assert!(!waiting.is_finished());
        assert_eq!(server.query::<u32>(&["DEL", "vanishes"]), 1);
        let (ended, took) = paced(tokio::time::timeout(PATIENCE, waiting)).await;
        let guard = ended.unwrap().unwrap();
        eprintln!("granted {took:?} after the key had vanished");
        assert!(took < LONGEST_SLEEP + SLACK, "{took:?}");
        give_back(guard).await;
        drop(held);
    });
}

#[test]
fn a_waiter_asks_again_shortly_after_the_holders_lease() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let mut tasks = JoinSet::new();
        for ttl in [150, 400, 700, 900].map(Duration::from_millis) {
            let name = format!("expires:{ttl:?}");
            let begun = Instant::now();
            hold_as_stranger(&server, &name, ttl);
            let lock = client.lock(name);
            tasks.spawn(async move {
                let (guard, took) = paced(lock.acquire()).await;
                // From when it was certainly not held yet.
                let granted = begun.elapsed();
                give_back(guard.unwrap()).await;
                (ttl, granted, took)
            });
        }
        while let Some(ended) = tokio::time::timeout(PATIENCE, tasks.join_next())
            .await
            .unwrap()
        {
            let (ttl, after, took) = ended.unwrap();
            eprintln!("a lease of {ttl:?}: granted after {after:?}");
            assert!(after >= ttl, "granted {after:?} into a lease of {ttl:?}");
            assert!(
                took < ttl + SLACK,
                "granted {took:?} into a lease of {ttl:?}"
            );
        }
    });
}

/// Nobody sleeps longer without asking.
const LONGEST_SLEEP: Duration = Duration::from_secs(2);
