//! Where the connection is kept that is used.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use super::{Generation, Live, lock};

/// The one that is used, if there is one.
#[derive(Debug, Default)]
pub(super) struct Slot {
    live: Mutex<Option<Live>>,
    /// It has gone.
    emptied: Notify,
}

impl Slot {
    /// This one is of no use any more.
    pub(super) fn bury(&self, generation: Generation) {
        let mut live = self.lock();
        if live
            .as_ref()
            .is_some_and(|now| now.generation == generation)
        {
            live.take();
            drop(live);
            self.emptied.notify_waiters();
        }
    }

    /// Resolves when there is none.
    pub(super) async fn emptied(&self) {
        loop {
            // Before it is looked at: whoever empties it tells afterwards.
            let emptied = self.emptied.notified();
            if self.lock().is_none() {
                return;
            }
            emptied.await;
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        lock(&self.live)
    }
}
