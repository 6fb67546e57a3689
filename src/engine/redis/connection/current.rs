//! Where the connection is kept that is used.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use super::{Generation, Live, lock};
use crate::engine::{Cause, Failure};

/// The one that is used, if there is one.
#[derive(Debug, Default)]
pub(super) struct Current {
    live: Mutex<Option<Live>>,
    /// The latest that has ended, be it before it was kept. Changed only under the lock of `live`.
    buried: Mutex<Generation>,
    /// It has gone.
    emptied: Notify,
}

impl Current {
    /// Keeps one that has just been made, unless another was made meanwhile: then it is not needed.
    ///
    /// # Errors
    ///
    /// If it has ended since: nobody would hear of that again.
    pub(super) fn keep(
        &self,
        generation: Generation,
        made: impl FnOnce() -> Live,
    ) -> Result<(), Failure> {
        let mut live = self.lock();
        if live.as_ref().is_some_and(|now| now.generation > generation) {
            return Ok(());
        }
        if *lock(&self.buried) >= generation {
            let why = "connected, but the server has ended the connection at once";
            return Err(Failure::new(Cause::Unreachable, why));
        }
        *live = Some(made());
        Ok(())
    }

    /// This one is of no use any more.
    pub(super) fn bury(&self, generation: Generation) {
        let mut live = self.lock();
        let mut buried = lock(&self.buried);
        *buried = generation.max(*buried);
        drop(buried);
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
