//! Callers in a hurry, while the servers of their locks take each other's places.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, Error};
use tokio::task::JoinSet;

use super::eventually;

/// Clients that take locks and give them back without end.
pub(crate) struct Hammer {
    tally: Arc<Tally>,
    clients: Vec<Client>,
    tasks: JoinSet<()>,
}

impl Hammer {
    /// `unspoken` are words, in lower case, that no caller is to hear of.
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

    /// The locks that are taken.
    pub(crate) fn names() -> impl Iterator<Item = String> {
        (0..LOCKS).map(name)
    }

    /// Waits until all have got on from here, and says how many calls went wrong so far.
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

    /// What was in doubt has been undone, or runs out: each lock can be had in the end.
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
    /// A caller may be told that nobody knows; not what servers say to each other's clients.
    fn note<T>(&self, outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(got) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Some(got)
            }
            Err(error) => {
                let text = format!(" {error} {error:?} ").to_lowercase();
                let text = text.replace(|letter: char| !letter.is_alphanumeric(), " ");
                // Its deadline is far away: it is not told of these in any words.
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

/// Of each client.
const CALLERS: usize = 3;
/// In a cluster each of its masters has one.
const LOCKS: usize = 3;
/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
