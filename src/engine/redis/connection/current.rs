//! Where the connection is kept that is used.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use super::{Generation, LiveConnection, lock};
use crate::engine::{StoreError, StoreErrorKind};

/// The one that is used, if there is one.
#[derive(Debug, Default)]
pub(super) struct CurrentConnection {
    live: Mutex<Option<LiveConnection>>,
    /// The latest that has ended, be it before it was kept. Changed only under the lock of `live`.
    last_dead: Mutex<Generation>,
    /// It has gone.
    disconnected: Notify,
}

impl CurrentConnection {
    /// Keeps one that has just been made, unless another was made meanwhile: then it is not needed.
    ///
    /// # Errors
    ///
    /// If it has ended since: nobody would hear of that again.
    pub(super) fn install(
        &self,
        generation: Generation,
        connect: impl FnOnce() -> LiveConnection,
    ) -> Result<(), StoreError> {
        let mut live = self.lock();
        if live.as_ref().is_some_and(|now| now.generation > generation) {
            return Ok(());
        }
        if *lock(&self.last_dead) >= generation {
            let why = "connected, but the server has ended the connection at once";
            return Err(StoreError::new(StoreErrorKind::Unreachable, why));
        }
        *live = Some(connect());
        Ok(())
    }

    /// This one is of no use any more.
    pub(super) fn mark_dead(&self, generation: Generation) {
        let mut live = self.lock();
        let mut last_dead = lock(&self.last_dead);
        *last_dead = generation.max(*last_dead);
        drop(last_dead);
        if live
            .as_ref()
            .is_some_and(|now| now.generation == generation)
        {
            live.take();
            drop(live);
            self.disconnected.notify_waiters();
        }
    }

    /// Resolves when there is none.
    pub(super) async fn disconnected(&self) {
        loop {
            // Before it is looked at: whoever empties it tells afterwards.
            let disconnected = self.disconnected.notified();
            if self.lock().is_none() {
                return;
            }
            disconnected.await;
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<LiveConnection>> {
        lock(&self.live)
    }
}
