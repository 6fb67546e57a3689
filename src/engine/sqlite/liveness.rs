//! Notices holders whose process has ended without releasing.
//!
//! The kernel then unlocks their file. Looking at an open file ten times a second costs next to nothing, and only
//! waiters do it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::bell::Ears;
use super::folder::{Folder, is_free};
use crate::engine::events::Events;
use crate::engine::supervise::{Restarts, caught};

/// The pause between two looks at a holder that somebody waits for.
const PAUSE: Duration = Duration::from_millis(100);

/// Clients that hold something our waiters want.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    watched: Mutex<HashMap<String, Watched>>,
    begun: Notify,
}

#[derive(Debug)]
struct Watched {
    file: File,
    /// The channels of its waiters.
    channels: HashSet<String>,
}

impl Liveness {
    /// Somebody at this channel waits for a client.
    pub(super) fn watch(&self, folder: &Folder, client: &str, channel: &str) {
        let mut watched = self.lock();
        if let Some(known) = watched.get_mut(client) {
            if !known.channels.contains(channel) {
                known.channels.insert(channel.to_owned());
            }
            return;
        }
        let Some(file) = folder.open(client) else {
            return;
        };
        let channels = HashSet::from([channel.to_owned()]);
        watched.insert(client.to_owned(), Watched { file, channels });
        self.begun.notify_one();
    }

    /// Looks now and then, for as long as it is driven.
    pub(super) async fn keep(self: Arc<Self>, ears: Arc<Ears>, events: Events) {
        let mut restarts = Restarts::of("liveness", &events);
        while let Err(panicked) = caught(self.look_on(&ears)).await {
            restarts.after(panicked).await;
            self.begun.notify_one();
        }
    }

    /// Asleep while there is no holder to look at.
    #[expect(clippy::disallowed_methods, reason = "engines may wait")]
    async fn look_on(&self, ears: &Ears) {
        loop {
            self.begun.notified().await;
            while !self.lock().is_empty() {
                tokio::time::sleep(PAUSE).await;
                for channel in self.look(ears) {
                    ears.tell(channel.as_bytes());
                }
            }
        }
    }

    /// The channels of waiters whose holder has gone.
    fn look(&self, ears: &Ears) -> Vec<String> {
        let mut free = Vec::new();
        self.lock().retain(|_, watched| {
            watched.channels.retain(|channel| ears.any(channel));
            let gone = is_free(&watched.file);
            if gone {
                free.extend(watched.channels.drain());
            }
            !watched.channels.is_empty()
        });
        free
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
