//! Readers that never pause, and one who wants to write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::log::{Claim, LOG, Writer};
use super::support::{RedisServer, SeededRng, eventually, patient_connection};
use super::{PATIENCE, connect};

/// Those who read when it is known to wait leave once each, and none of them comes back before it has had its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_waits_for_one_generation_of_64_readers_that_never_pause() {
    let server = RedisServer::start();
    let connection = patient_connection(&server.own_url()).await;
    let (over, granted) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut readers = JoinSet::new();
    for client in 0..CLIENTS {
        let lock = connect(&server.url()).await.rw_lock("prices");
        for number in 0..READERS / CLIENTS {
            let (lock, over, granted) = (lock.clone(), over.clone(), granted.clone());
            let process = client * (READERS / CLIENTS) + number;
            let connection = connection.clone();
            let log = Writer {
                process,
                connection,
            };
            let mut rng = SeededRng::new(process.into());
            readers.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = lock.read().acquire().await.expect("the server is up");
                    log.claim("prices", 0, Claim::Reads).await;
                    granted.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_micros(rng.below(3000))).await;
                    guard.release().await.expect("it is ours");
                }
            });
        }
    }
    let client = connect(&server.url()).await;
    let log = Writer {
        process: READERS,
        connection,
    };
    let lock = client.rw_lock("prices").write();
    let (mut most, mut waited) = (0, 0);
    for turn in 0..TURNS {
        // All of them are at it again.
        let before = granted.load(Ordering::Relaxed);
        eventually(PATIENCE, "they read", async || {
            granted.load(Ordering::Relaxed) > before + u64::from(READERS)
        })
        .await;
        server.cmd(&["DEL", LOG]);
        let writer = tokio::spawn(lock.acquire());
        eventually(PATIENCE, "it waits", async || {
            writer.is_finished() || server.pttl("distlock_writers:{prices}") > 0
        })
        .await;
        waited += u64::from(!writer.is_finished());
        log.claim("prices", turn, Claim::Nothing).await;
        let writer = timeout(PATIENCE, writer).await.expect("it gets in");
        let writer = writer.expect("no panic").expect("the server is up");
        log.claim("prices", turn, Claim::Writes).await;
        let entries: Vec<String> = server.query(&["LRANGE", LOG, "0", "-1"]);
        writer.release().await.expect("it is ours");
        most = most.max(later_readers(&entries));
    }
    over.store(true, Ordering::Relaxed);
    readers.join_all().await;
    eprintln!(
        "{TURNS} turns, waited for in {waited}; in the worst, {most} of {READERS} readers were still to say that they read"
    );
    assert!(waited > TURNS / 2, "they pause");
    eventually(PATIENCE, "nothing is left", async || server.keys() == [LOG]).await;
}

/// How many readers said that they read between the writer's two entries. Each may, once: it was let in before.
fn later_readers(entries: &[String]) -> usize {
    let own = format!("{READERS} ");
    let later = entries.iter().skip_while(|entry| !entry.starts_with(&own));
    let later = later.skip(1).take_while(|entry| !entry.starts_with(&own));
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in later {
        let (reader, _) = entry.split_once(' ').expect("a reader and what it does");
        *times.entry(reader).or_default() += 1;
    }
    let again = times.iter().find(|(_, times)| **times > 1);
    assert_eq!(again, None, "a reader came back before the writer's turn");
    times.len()
}

const CLIENTS: u32 = 4;
const READERS: u32 = 64;
const TURNS: u64 = 30;
