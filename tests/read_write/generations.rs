//! Readers that never pause, and a writer among them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{PATIENCE, connect};
use crate::support::{RedisServer, SeededRng, eventually, simulated, world};

/// Those who read when it is known to wait leave once each, and none of them comes back before it has had its turn.
#[test]
fn a_writer_waits_for_one_generation_of_64_readers_that_never_pause() {
    const CLIENTS: u64 = 4;
    const READERS: u64 = 64;
    const TURNS: u64 = 100;
    simulated(async || {
        let server = RedisServer::start();
        let over = Arc::new(AtomicBool::new(false));
        let granted = Arc::new(AtomicU64::new(0));
        // How often each reader was let in since the writer was known to wait.
        let later = Arc::new(Mutex::new(BTreeMap::<u64, u64>::new()));
        let mut readers = JoinSet::new();
        for client in 0..CLIENTS {
            let lock = connect(&server.url()).await.rw_lock("prices");
            for number in 0..READERS / CLIENTS {
                let (lock, over) = (lock.clone(), over.clone());
                let (granted, later) = (granted.clone(), later.clone());
                let mut rng = SeededRng::new(world().below(u64::MAX));
                readers.spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        let guard = lock.read().acquire().await.expect("the server is up");
                        granted.fetch_add(1, Ordering::Relaxed);
                        *later
                            .lock()
                            .unwrap()
                            .entry(client * 100 + number)
                            .or_default() += 1;
                        sleep(Duration::from_millis(rng.below(30))).await;
                        guard.release().await.expect("it is ours");
                    }
                });
            }
        }
        let lock = connect(&server.url()).await.rw_lock("prices").write();
        let mut waited = 0;
        for _ in 0..TURNS {
            let before = granted.load(Ordering::Relaxed);
            eventually(PATIENCE, "all of them are at it again", async || {
                granted.load(Ordering::Relaxed) > before + READERS
            })
            .await;
            let writer = tokio::spawn(lock.acquire());
            eventually(PATIENCE, "it waits", async || {
                writer.is_finished() || server.pttl("distlock_writers:{prices}") > 0
            })
            .await;
            waited += u64::from(!writer.is_finished());
            later.lock().unwrap().clear();
            let writer = timeout(PATIENCE, writer).await.expect("it gets in");
            let writer = writer.expect("no panic").expect("the server is up");
            let most = later.lock().unwrap().values().max().copied();
            // Once, if it was let in before and had not heard of it.
            assert!(
                most <= Some(1),
                "a reader came back before the writer's turn"
            );
            writer.release().await.expect("it is ours");
        }
        over.store(true, Ordering::Relaxed);
        readers.join_all().await;
        assert!(waited > TURNS / 2, "they pause");
        eventually(PATIENCE, "nothing is left", async || {
            server.keys().is_empty()
        })
        .await;
    });
}
