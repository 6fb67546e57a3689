//! The blocking version of the guard.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::worker::{Worker, closed};
use crate::{Error, Held, Lost, Plain};

/// The blocking version of [`crate::Guard`]; the methods that only read are in [`Held`].
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let guard = client.lock("stock").acquire()?;
/// assert!(guard.is_held());
/// # guard.release() }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard<K = Plain> {
    pub(super) guard: Arc<crate::Guard<K>>,
    pub(super) worker: Arc<Worker>,
}

impl<K: 'static> Guard<K> {
    /// Returns a view of this guard that can be cloned and passed around, but not released. See [`crate::Guard::held`].
    pub fn held(&self) -> Held<K> {
        self.guard.held()
    }

    /// Waits until the lock is lost, for at most `timeout`; returns `None` if it is still held then.
    ///
    /// It replaces [`crate::Guard::while_held`]: a thread cannot be stopped from outside, but another thread can wait
    /// for the loss and notify it.
    ///
    /// # Examples
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

    /// Extends a fixed lease to this long from now, if it would expire sooner. See [`crate::Guard::extend`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Guard::extend`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        let guard = self.guard.clone();
        self.worker.run(async move { guard.extend(lease).await })?
    }

    /// Releases the lock and reports whether it was still held. See [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Guard::release`].
    pub fn release(self) -> Result<(), Error> {
        let Self { guard, worker } = self;
        match Arc::try_unwrap(guard) {
            Ok(guard) => worker.run(guard.release())?,
            Err(shared) => {
                // A second reference exists only in a forked child: leaked work keeps it.
                std::mem::forget(shared);
                Err(closed(true))
            }
        }
    }

    /// Releases the lock after work that was done under it; fails only if it was not held until then.
    pub(super) fn release_after_run(self) -> Result<(), Error> {
        let Self { guard, worker } = self;
        match Arc::try_unwrap(guard) {
            Ok(guard) => worker.run(guard.release_after_run())?,
            Err(shared) => {
                // A second reference exists only in a forked child: leaked work keeps it.
                std::mem::forget(shared);
                Err(closed(true))
            }
        }
    }

    /// Stops renewing and leaves the lock to its lease, so that it stays held after this process has ended. See
    /// [`crate::Guard::forget`].
    pub fn forget(self) {
        match Arc::try_unwrap(self.guard) {
            Ok(guard) => guard.forget(),
            // A second reference exists only in a forked child: leaked work keeps it.
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
