//! Every hold of this library has a time to live.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::{Client, Lease};
use tokio::task::JoinSet;

use super::stage::assert_is_redissons;
use super::support::{ChaosProxy, RedisServer, SeededRng, batch, eventually};
use super::{PATIENCE, connect};

/// Three clients do everything that can be done to three locks, while an observer reads every key as fast as the server allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_of_distlock_is_ever_without_expiry() {
    let mut rng = SeededRng::from_env_or(0x7769_7265);
    let server = Arc::new(RedisServer::start());
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Mutex::new(KeyCounts::default()));
    let watch = {
        let (server, stop, seen) = (server.clone(), stop.clone(), seen.clone());
        std::thread::spawn(move || watch(&server, &stop, &seen))
    };
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = connect(&server).await;
        for _ in 0..3 {
            let rng = SeededRng::new(rng.next_u64());
            tasks.spawn(churn(client.clone(), rng, over.clone()));
        }
        clients.push(client);
    }
    // No other client wants this lock, so the server hands it off to the next waiter in one step.
    let proxy = ChaosProxy::start(server.addr());
    let alone = Client::builder(&proxy.url())
        .handoff_limit(0)
        .command_timeout(PATIENCE);
    let alone = alone.connect().await.unwrap();
    for _ in 0..3 {
        tasks.spawn(take_turns(alone.clone(), over.clone()));
    }
    clients.push(alone);
    // Longer than most of them wait for a reply: a request that is not replied to then has to be undone.
    let (begun, enough) = (Instant::now(), || seen.lock().unwrap().is_enough());
    while begun.elapsed() < CHURN || (begun.elapsed() < PATIENCE && !enough()) {
        server.cmd(&["CLIENT", "PAUSE", "100", "WRITE"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    for client in clients {
        client.close().await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    watch.join().expect("every key was as it should be");
    let seen = *seen.lock().unwrap();
    eprintln!("{seen:?}");
    assert!(seen.is_enough(), "{seen:?}");
    let pass = include_str!("../../src/engine/redis/lua/mutex/transfer.lua");
    let pass = redis::Script::new(pass).get_hash().to_owned();
    // The call is sent alone or in a batch.
    let mut calls = proxy.requests().into_iter().flat_map(batch::apart);
    let passed = calls.any(|call| call.contains(&pass));
    assert!(passed, "nothing was passed on");
    // Tombstones stay for minutes, on purpose.
    let left = |key: &String| !key.starts_with("distlock_undone:");
    eventually(PATIENCE, "no lock is left", async || {
        !server.keys().iter().any(left)
    })
    .await;
    assert!(server.pubsub_channels().is_empty());
}

#[test]
#[should_panic(expected = "`order` has no end")]
fn a_key_without_expiry_is_detected() {
    let server = RedisServer::start();
    server.cmd(&[
        "HSET",
        "order",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1",
        "1",
    ]);
    watch(&server, &AtomicBool::new(true), &Mutex::default());
}

async fn churn(client: Client, mut rng: SeededRng, over: Arc<AtomicBool>) {
    let me = client.new_owner();
    while !over.load(Ordering::Relaxed) {
        let name = *rng.pick(&["order", "{stock}:1", "a}b"]);
        let lease = *rng.pick(&[
            Lease::Fixed(Duration::from_millis(300)),
            Lease::KeepAlive(Duration::from_millis(150)),
            Lease::KeepAlive(Duration::from_secs(30)),
        ]);
        let lock = client.lock(name).with_lease(lease);
        let wait = Duration::from_micros(rng.below(20_000));
        // The future is dropped wherever it may be: then the acquire is undone.
        let Ok(guard) = tokio::time::timeout(wait, lock.clone().with_owner(&me).acquire()).await
        else {
            continue;
        };
        // The lock may be lost before it was granted, on a busy machine or because another client forced it open.
        let Ok(guard) = guard else { continue };
        match rng.below(8) {
            0 => drop(lock.with_owner(&me).acquire().await),
            1 => drop(guard.extend(Duration::from_millis(400)).await),
            2 => drop(client.admin().force_release(name).await),
            3 => {
                if let Ok(inner) = lock.with_owner(&me).acquire().await {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    drop(guard);
                    drop(inner.release().await);
                }
                continue;
            }
            4 => tokio::time::sleep(Duration::from_millis(rng.below(120))).await,
            5 if matches!(lease, Lease::Fixed(_)) => {
                guard.forget();
                continue;
            }
            _ => tokio::task::yield_now().await,
        }
        if rng.chance(60) {
            // Whether the lock was still held does not matter here.
            drop(guard.release().await);
        }
    }
}

async fn take_turns(client: Client, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        let guard = client.lock("alone").acquire().await.unwrap();
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct KeyCounts {
    looks: u32,
    held: u32,
    nested: u32,
    undone: u32,
}

impl KeyCounts {
    /// Returns whether every kind of key has been seen; a busy machine takes longer to show it.
    const fn is_enough(&self) -> bool {
        self.looks > 100 && self.held > 100 && self.nested > 0 && self.undone > 0
    }
}

/// Scans all keys until it is told to stop, once at least, and panics at a key that must not exist.
fn watch(server: &RedisServer, stop: &AtomicBool, all: &Mutex<KeyCounts>) {
    loop {
        let last = stop.load(Ordering::Relaxed);
        let keys: Vec<(String, String, i64, Vec<String>)> = server.query(&["EVAL", LOOK, "0"]);
        let mut seen = KeyCounts::default();
        for (key, sort, pttl, fields) in keys {
            assert!(pttl >= 0, "`{key}` has no end");
            if key.starts_with("distlock_undone:") {
                assert_eq!(sort, "zset");
                seen.undone += 1;
                continue;
            }
            assert_eq!(sort, "hash", "`{key}`");
            let [owner, count] = <[String; 2]>::try_from(fields).expect("one owner");
            assert_is_redissons(&owner);
            let count: u32 = count.parse().expect("a count");
            assert!(count > 0, "`{key}`");
            seen.held += 1;
            seen.nested += u32::from(count > 1);
        }
        let mut all = all.lock().unwrap();
        all.looks += 1;
        all.held += seen.held;
        all.nested += seen.nested;
        all.undone += seen.undone;
        if last {
            return;
        }
    }
}

const CHURN: Duration = Duration::from_millis(1500);
const LOOK: &str = "
local found = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  local sort = redis.call('TYPE', key).ok
  local fields = sort == 'hash' and redis.call('HGETALL', key) or {}
  found[i] = {key, sort, redis.call('PTTL', key), fields}
end
return found";
