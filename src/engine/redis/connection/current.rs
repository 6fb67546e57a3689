//! The current connection of a [`Connection`](super::Connection).

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use super::{Generation, LiveConnection, lock};
use crate::engine::{StoreError, StoreErrorKind};

/// The current connection, if there is one.
#[derive(Debug, Default)]
pub(super) struct CurrentConnection {
    live: Mutex<Option<LiveConnection>>,
    /// The latest generation that has ended, even if it ended before it was installed. Changed only under the lock of
    /// `live`.
    last_dead: Mutex<Generation>,
    /// Notified when the current connection has gone.
    disconnected: Notify,
}

impl CurrentConnection {
    /// Installs a new connection, unless a newer one was made in the meantime: then it is not needed.
    ///
    /// # Errors
    ///
    /// If the connection has ended since: no further event would report that.
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
            let why = "the server closed the new connection at once";
            return Err(StoreError::new(StoreErrorKind::Unreachable, why));
        }
        *live = Some(connect());
        Ok(())
    }

    /// Marks a connection as dead, and drops it if it is the current one.
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

    /// Resolves when there is no connection.
    pub(super) async fn disconnected(&self) {
        loop {
            // Register before the check: `mark_dead` empties `live` first and notifies afterwards.
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
