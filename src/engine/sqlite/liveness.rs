//! Notices holders whose process has ended without releasing.
//!
//! The kernel then unlocks their lock file. Polling an open file ten times a second costs next to
//! nothing, and only waiters do it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::client_dir::{ClientDir, is_unlocked};
use super::wake_socket::LocalSubscribers;
use crate::engine::events::Events;
use crate::engine::supervise::{Restarts, catch_panic};

/// The interval at which the lock files of holders with waiters are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Clients that hold locks for which this client has waiters.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    watched: Mutex<HashMap<String, WatchedClient>>,
    added: Notify,
}

#[derive(Debug)]
struct WatchedClient {
    file: File,
    /// The channels of its waiters.
    channels: HashSet<String>,
}

impl Liveness {
    /// Watches a client for a waiter at this channel.
    pub(super) fn watch(&self, client_dir: &ClientDir, client: &str, channel: &str) {
        let mut watched = self.lock();
        if let Some(known) = watched.get_mut(client) {
            if !known.channels.contains(channel) {
                known.channels.insert(channel.to_owned());
            }
            return;
        }
        let Some(file) = client_dir.open_lock_file(client) else {
            return;
        };
        let channels = HashSet::from([channel.to_owned()]);
        watched.insert(client.to_owned(), WatchedClient { file, channels });
        self.added.notify_one();
    }

    /// Polls the watched clients, for as long as the future is driven.
    pub(super) async fn run(self: Arc<Self>, subscribers: Arc<LocalSubscribers>, events: Events) {
        let mut restarts = Restarts::new("liveness", &events);
        while let Err(panicked) = catch_panic(self.poll_loop(&subscribers)).await {
            restarts.report_and_wait(panicked).await;
            self.added.notify_one();
        }
    }

    /// Polls while there are watched clients, and sleeps otherwise.
    #[expect(clippy::disallowed_methods, reason = "engines may wait")]
    async fn poll_loop(&self, subscribers: &LocalSubscribers) {
        loop {
            self.added.notified().await;
            while !self.lock().is_empty() {
                tokio::time::sleep(POLL_INTERVAL).await;
                for channel in self.poll(subscribers) {
                    subscribers.notify(channel.as_bytes());
                }
            }
        }
    }

    /// Returns the channels of waiters whose holder has gone.
    fn poll(&self, subscribers: &LocalSubscribers) -> Vec<String> {
        let mut free = Vec::new();
        self.lock().retain(|_, watched| {
            watched
                .channels
                .retain(|channel| subscribers.has_subscribers(channel));
            let dead = is_unlocked(&watched.file);
            if dead {
                free.extend(watched.channels.drain());
            }
            !watched.channels.is_empty()
        });
        free
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, WatchedClient>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
