//! Callers in a hurry, while one failover follows another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, Error};

use super::support::{Topology, eventually};
use super::{PATIENCE, beside, patient};

const TASKS: usize = 6;
const FAILOVERS: usize = 3;

#[derive(Default)]
struct Tally {
    done: AtomicU64,
    errors: AtomicU64,
    over: AtomicBool,
}

impl Tally {
    /// A caller may be told that nobody knows; not that the server it never chose may not be written to.
    fn note<T>(&self, outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(got) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Some(got)
            }
            Err(error) => {
                let text = format!("{error} {error:?}").to_lowercase();
                // Its deadline is far away: it is not told of a replica in any words.
                for word in ["readonly", "read only", "replica"] {
                    assert!(!text.contains(word), "{error}");
                }
                let known = error.is_transient() || matches!(error, Error::Lost { .. });
                assert!(known, "{error:?}");
                self.errors.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

async fn hammer(client: Client, task: usize, tally: Arc<Tally>) {
    let mut round = 0;
    while !tally.over.load(Ordering::Relaxed) {
        round += 1;
        let lock = client.lock(format!("hammered-{}", (task + round) % 3));
        let got = if round % 2 == 0 {
            tally.note(lock.try_acquire().await).flatten()
        } else {
            let wait = Duration::from_secs(2);
            tally.note(lock.acquire_timeout(wait).await).flatten()
        };
        if let Some(guard) = got {
            tally.note(guard.release().await);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_of_a_server_that_may_not_be_written_to() {
    let topology = Topology::start();
    let tally = Arc::new(Tally::default());
    let mut tasks = tokio::task::JoinSet::new();
    let mut clients = Vec::new();
    for url in [topology.url(), format!("{}?scripts=off", topology.url())] {
        // A failover takes seconds: so long a call is to be kept from failing.
        let client = patient(&url).connect().await.expect("it is up");
        for task in 0..TASKS / 2 {
            tasks.spawn(hammer(client.clone(), task, tally.clone()));
        }
        clients.push(client);
    }
    for failover in 0..FAILOVERS {
        beside(|| {
            topology.until_settled();
            let old = topology.order_failover();
            let new = topology.until_promoted(old);
            // Sentinels demote the old master seconds later. Whoever still believes in it meets a replica.
            let port = new.port().to_string();
            old.cmd(&["REPLICAOF", "127.0.0.1", &port]);
            topology.until_not(old);
        });
        let before = tally.done.load(Ordering::Relaxed);
        eventually(PATIENCE, "all goes on", async || {
            while let Some(ended) = tasks.try_join_next() {
                ended.expect("nobody is told what it must not be");
            }
            tally.done.load(Ordering::Relaxed) > before + 20 * TASKS as u64
        })
        .await;
        let errors = tally.errors.load(Ordering::Relaxed);
        eprintln!("failover {failover}: {before} done before, {errors} errors so far");
    }
    tally.over.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("nobody is told what it must not be");
    }
    // What was in doubt has been undone, or runs out.
    for client in clients {
        let name = "hammered-0";
        eventually(PATIENCE, "it can be had", async || {
            let got = client.lock(name).acquire_timeout(PATIENCE).await;
            got.is_ok_and(|got| got.is_some())
        })
        .await;
    }
}
