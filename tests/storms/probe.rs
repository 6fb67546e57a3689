//! A client in the test's own process: it finds out when locks are granted again, and acquires locks that another process believes in.

use std::thread;
use std::time::{Duration, Instant};

use distlock::{Client, Guard};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::hold_interval::{HoldInterval, HoldLog, now};
use super::load::LOOK;
use super::terms::Settings;

pub(crate) struct Probe {
    // Declared before its runtime, which it needs to the end.
    client: Client,
    runtime: Runtime,
}

impl Probe {
    pub(crate) fn connect(url: &str, terms: &Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be had");
        let client = runtime.block_on(terms.builder(url).connect());
        let client = client.expect("the servers are up");
        Self { client, runtime }
    }

    /// Requests the lock from now on until it is granted, and returns when that was.
    pub(crate) fn returns(&self, name: String) -> Returns {
        let client = self.client.clone();
        let granted = self.runtime.spawn(async move {
            let guard = granted(&client, &name).await;
            let when = now();
            // No other process wants the lock.
            let _ = guard.release().await;
            when
        });
        Returns(granted)
    }

    /// Returns how much later than it was due the grant was.
    pub(crate) fn lateness(&self, returns: Returns, due: Duration) -> Duration {
        let granted = self.runtime.block_on(returns.0);
        granted
            .expect("it is granted some time")
            .saturating_sub(due)
    }

    /// Requests from now on a lock that another process may believe in, keeps it for a moment, and returns its own belief.
    pub(crate) fn rival(&self, name: &str) -> ContendingTask {
        let (client, name) = (self.client.clone(), name.to_owned());
        let rival = self.runtime.spawn(async move {
            let (mut diary, guard) = loop {
                let guard = granted(&client, &name).await;
                if let Some(diary) = HoldLog::begin(&guard) {
                    break (diary, guard);
                }
            };
            let until = now() + KEPT;
            let mut held = true;
            while held && now() < until {
                tokio::time::sleep(LOOK).await;
                held = diary.check_hold(&guard);
            }
            let belief = diary.end(None);
            // Whether the lock was still held changes nothing of that.
            let _ = guard.release().await;
            belief
        });
        ContendingTask(rival)
    }

    pub(crate) fn until_done(&self, rival: ContendingTask) -> HoldInterval {
        let belief = self.runtime.block_on(rival.0);
        belief.expect("it gets it some time")
    }
}

/// A task that acquires a lock that another process holds; see [`Probe::rival`].
pub(crate) struct ContendingTask(JoinHandle<HoldInterval>);

/// The time of the grant; see [`Probe::returns`].
pub(crate) struct Returns(JoinHandle<Duration>);

async fn granted(client: &Client, name: &str) -> Guard {
    let begun = Instant::now();
    loop {
        let tried = client.lock(name).try_acquire().await;
        let why = match tried {
            Ok(Some(guard)) => return guard,
            Ok(None) => "it is busy".to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(begun.elapsed() < PATIENCE, "not granted: {why}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits for a condition that servers bring about at their own pace.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        thread::sleep(LOOK);
    }
}

const KEPT: Duration = Duration::from_millis(200);
/// Sentinels wait for seconds between their steps, even on an idle machine.
const PATIENCE: Duration = Duration::from_secs(90);
