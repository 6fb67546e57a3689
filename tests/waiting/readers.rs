//! Readers and writers: a writer among readers that never pause, and a reader behind a writer that is never let in.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::connect;
use crate::support::{PATIENCE, RedisServer, SeededRng, eventually, simulated, world};

/// The readers that hold the lock when the writer is known to wait leave once each, and none of them returns before the writer has had its
/// turn.
#[test]
fn a_writer_waits_for_one_generation_of_64_readers_that_never_pause() {
    const CLIENTS: u64 = 4;
    const READERS: u64 = 64;
    const TURNS: u64 = 100;
    simulated(async || {
        let server = RedisServer::start();
        let over = Arc::new(AtomicBool::new(false));
        let granted = Arc::new(AtomicU64::new(0));
        // Grants of each reader since the writer was known to wait.
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
            // One more grant is allowed to a reader that was admitted before and had not learned of the writer.
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

/// Longest wait of a reader behind writers.
const BEHIND_WRITERS: Duration = Duration::from_secs(60);
/// Interval at which a waiting reader polls by itself.
const ASKS: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn a_reader_waits_a_minute_behind_a_writer_that_is_never_let_in_and_not_longer() {
    let client = Client::connect("memory:").await.expect("it is there");
    let other = Client::connect("memory:").await.expect("it is there");
    for client in [&client, &other] {
        let lock = client.rw_lock("prices");
        let stays = lock.read().acquire().await.expect("it is free");
        let writer = tokio::spawn(lock.write().acquire());
        tokio::task::yield_now().await;
        for _ in 0..2 {
            let begun = Instant::now();
            let reader = timeout(BEHIND_WRITERS * 2, lock.read().acquire()).await;
            let reader = reader.expect("it is let in").expect("somebody reads");
            let waited = begun.elapsed();
            assert!(waited >= BEHIND_WRITERS, "{waited:?}: a writer waits");
            assert!(waited <= BEHIND_WRITERS + ASKS, "{waited:?}");
            assert!(stays.is_held() && reader.is_held() && !writer.is_finished());
            reader.release().await.expect("it is ours");
        }
        // A reader that does not wait is not admitted past the writer.
        let tried = lock.read().try_acquire().await.expect("it answers");
        assert!(tried.is_none(), "a writer waits");
        stays.release().await.expect("it is ours");
        let writer = writer.await.expect("no panic").expect("its turn");
        writer.release().await.expect("it is ours");
    }
}
