//! Callers that acquire and release without pause while the servers of their locks fail over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, Error};
use tokio::task::JoinSet;

use super::eventually;

/// Clients that acquire and release locks until they are stopped.
pub(crate) struct Hammer {
    tally: Arc<Tally>,
    clients: Vec<Client>,
    tasks: JoinSet<()>,
}

impl Hammer {
    /// Starts the callers. `unspoken` are words, in lower case, that no error may contain.
    pub(crate) fn start(clients: Vec<Client>, unspoken: &'static [&'static str]) -> Self {
        let tally = Arc::new(Tally {
            unspoken,
            done: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for client in &clients {
            for task in 0..CALLERS {
                tasks.spawn(hammer(client.clone(), task, tally.clone()));
            }
        }
        Self {
            tally,
            clients,
            tasks,
        }
    }

    /// Returns the names of the locks.
    pub(crate) fn names() -> impl Iterator<Item = String> {
        (0..LOCKS).map(name)
    }

    /// Waits until the callers have made progress from here, and returns how many calls have failed so far.
    pub(crate) async fn goes_on(&mut self) -> u64 {
        let done = || self.tally.done.load(Ordering::Relaxed);
        let enough = done() + 20 * (CALLERS * self.clients.len()) as u64;
        eventually(PATIENCE, "all goes on", async || {
            while let Some(ended) = self.tasks.try_join_next() {
                ended.expect("nobody is told what it must not be");
            }
            done() > enough
        })
        .await;
        self.tally.errors.load(Ordering::Relaxed)
    }

    /// Stops the callers and checks that every lock can be acquired in the end: a request in doubt has been undone, or its
    /// lease expires.
    pub(crate) async fn end(mut self) {
        self.tally.over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("nobody is told what it must not be");
        }
        for client in &self.clients {
            for name in Self::names() {
                eventually(PATIENCE, "it can be had", async || {
                    let got = client.lock(&*name).acquire_timeout(PATIENCE).await;
                    got.is_ok_and(|got| got.is_some())
                })
                .await;
            }
        }
    }
}

struct Tally {
    unspoken: &'static [&'static str],
    done: AtomicU64,
    errors: AtomicU64,
    over: AtomicBool,
}

impl Tally {
    /// Counts a success, or checks an error. A caller may learn that an outcome is unknown, but must not see the words that
    /// servers use for redirects and failovers.
    fn note<T>(&self, outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(got) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Some(got)
            }
            Err(error) => {
                let text = format!(" {error} {error:?} ").to_lowercase();
                let text = text.replace(|letter: char| !letter.is_alphanumeric(), " ");
                // The caller's deadline is far away, so these words must not appear in its errors.
                for word in self.unspoken {
                    assert!(!text.contains(&format!(" {word} ")), "{error}");
                }
                let known = error.is_transient() || matches!(error, Error::Lost { .. });
                assert!(known, "{error:?}");
                eprintln!("told: {error}");
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
        let lock = client.lock(name((task + round) % LOCKS));
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

fn name(number: usize) -> String {
    format!("hammered-{number}")
}

/// Callers of each client.
const CALLERS: usize = 3;
/// In a cluster each of its masters has one of the locks.
const LOCKS: usize = 3;
/// Upper bound for any step on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
