//! Proof that a lock is held, without `async`.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::worker::{Worker, closed};
use crate::{Error, Held, Lost, Plain};

/// [`crate::Guard`] without `async`; what only looks is in [`Held`].
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let guard = client.lock("stock").acquire()?;
/// assert!(guard.is_held());
/// # guard.release() }
/// ```
#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub struct Guard<K = Plain> {
    pub(super) guard: Arc<crate::Guard<K>>,
    pub(super) worker: Arc<Worker>,
}

impl<K: 'static> Guard<K> {
    /// As [`crate::Guard::held`].
    pub fn held(&self) -> Held<K> {
        self.guard.held()
    }

    /// Waits until the lock is lost, for at most `timeout`; `None` if it is still held then.
    ///
    /// In place of [`crate::Guard::while_held`]: a thread cannot be stopped from outside, but another
    /// one can be told.
    ///
    /// ```
    /// # fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration;
    /// # let client = distlock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("stock").acquire()?;
    /// assert_eq!(guard.wait_lost(Duration::from_millis(1)), None);
    /// # guard.release() }
    /// ```
    pub fn wait_lost(&self, timeout: Duration) -> Option<Lost> {
        let lost = self.worker.run_for(timeout, self.guard.lost());
        lost.ok().flatten().flatten()
    }

    /// As [`crate::Guard::extend`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        let guard = self.guard.clone();
        self.worker.run(async move { guard.extend(lease).await })?
    }

    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(self) -> Result<(), Error> {
        let Self { guard, worker } = self;
        match Arc::try_unwrap(guard) {
            Ok(guard) => worker.run(guard.release())?,
            Err(shared) => {
                // Only work that a forked child had to forget keeps it.
                std::mem::forget(shared);
                Err(closed(true))
            }
        }
    }

    /// Releases the lock after work that was done under it; fails only if it was not held until then.
    pub(super) fn conclude(self) -> Result<(), Error> {
        let Self { guard, worker } = self;
        match Arc::try_unwrap(guard) {
            Ok(guard) => worker.run(guard.conclude())?,
            Err(shared) => {
                // Only work that a forked child had to forget keeps it.
                std::mem::forget(shared);
                Err(closed(true))
            }
        }
    }

    /// As [`crate::Guard::forget`].
    pub fn forget(self) {
        match Arc::try_unwrap(self.guard) {
            Ok(guard) => guard.forget(),
            // Only work that a forked child had to forget keeps it.
            Err(shared) => std::mem::forget(shared),
        }
    }
}

impl<K> Deref for Guard<K> {
    type Target = Held<K>;

    fn deref(&self) -> &Held<K> {
        &self.guard
    }
}
