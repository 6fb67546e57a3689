//! The properties of the read/write lock beyond those of every lock.

use std::time::Duration;

use distlock::{Client, Error, Guard, Lock, RwLock};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::stage::{ASLEEP, CaseResult, Stage, Write, in_time, seen};

mod sharing;
mod sides;

/// Returns two clients, and one lock as each of them sees it.
async fn two(stage: &Stage<Write>) -> Result<(Client, Client, RwLock, RwLock), Error> {
    let (a, b) = stage.clients().await?;
    let name = stage.name("prices");
    let (a, b): (Client, Client) = ((*a).clone(), (*b).clone());
    let (lock, other) = (a.rw_lock(&*name), b.rw_lock(&*name));
    Ok((a, b, lock, other))
}

async fn writer_waits(client: &Client, name: &str) -> CaseResult {
    in_time(async {
        while seen(client, name).await?.waiting.is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
    .await
}

/// A waiter, and the time just before its first request.
struct Sleeper<K> {
    asked: Instant,
    acquiring: JoinHandle<Result<Guard<K>, Error>>,
}

impl<K: Send + 'static> Sleeper<K> {
    /// Starts a waiter that has found the lock busy, and sleeps.
    async fn new(lock: Lock<K>) -> Self {
        let sleeper = Self::begin(lock);
        sleep(ASLEEP).await;
        sleeper
    }

    /// Starts a waiter that is about to send its first request.
    fn begin(lock: Lock<K>) -> Self {
        Self {
            asked: Instant::now(),
            acquiring: tokio::spawn(lock.acquire()),
        }
    }

    fn waits(&self) -> bool {
        !self.acquiring.is_finished()
    }

    /// Returns the lock that the waiter has acquired, and how long it waited.
    async fn woken(self) -> Result<(Guard<K>, Duration), Error> {
        let guard = in_time(self.acquiring).await.expect("no panic")?;
        Ok((guard, self.asked.elapsed()))
    }
}

async fn nothing_is_left(clients: &[&Client], name: &str) -> CaseResult {
    for client in clients {
        assert!(client.admin().inspect(name).await?.is_none());
    }
    Ok(())
}
