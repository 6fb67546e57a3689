//! The blocking version of several locks that are acquired together.

use std::ops::Deref;
use std::time::Duration;

use super::member::{Member, Workers};
use crate::{Error, Lease, Lost, MultiHeld, RunError};

/// The blocking version of [`crate::MultiLock`].
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # use distlock::blocking::MultiLock;
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let both = MultiLock::new([client.lock("a").into(), client.lock("b").into()]);
/// let guard = both.acquire()?;
/// assert!(client.lock("a").try_acquire()?.is_none());
/// # guard.release() }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    lock: crate::MultiLock,
    workers: Workers,
}

impl MultiLock {
    /// Returns these locks as one. See [`crate::MultiLock::new`].
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        let (members, workers) = Workers::of(members);
        let lock = crate::MultiLock::new(members);
        Self { lock, workers }
    }

    /// Sets how long all of them stay held if they are not released. See [`crate::MultiLock::with_lease`].
    #[must_use]
    pub fn with_lease(self, lease: Lease) -> Self {
        let lock = self.lock.with_lease(lease);
        Self { lock, ..self }
    }

    /// Acquires all of them, waiting as long as it takes. See [`crate::MultiLock::acquire`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::MultiLock::acquire`].
    pub fn acquire(&self) -> Result<MultiGuard, Error> {
        let guard = self.workers.run(self.lock.acquire())?;
        Ok(self.guard(guard))
    }

    /// Acquires all of them if they are free now; otherwise returns `None` and holds none. See
    /// [`crate::MultiLock::try_acquire`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::MultiLock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        let guard = self.workers.run(self.lock.try_acquire())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires all of them, waiting for at most `wait`, everything included; returns `None` if another owner still holds
    /// one of them then. See [`crate::MultiLock::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::MultiLock::acquire_timeout`].
    pub fn acquire_timeout(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        let guard = self.workers.run(self.lock.acquire_timeout(wait))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires the locks, does the work and releases them. `Ok` means that all locks were held from the beginning of
    /// the work to its end.
    ///
    /// A thread cannot be stopped from outside: the work should check its [`MultiHeld`] between its steps.
    ///
    /// # Errors
    ///
    /// The errors of [`MultiLock::acquire`], and [`Error::Lost`] if one of the locks was lost before the work ended;
    /// [`RunError::into_output`] then returns the output of the work.
    pub fn run<T>(&self, work: impl FnOnce(MultiHeld) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire()?;
        let output = work(guard.held());
        match guard.release_after_run() {
            Ok(()) => Ok(output),
            Err(error) => Err(RunError::with_output(error, output)),
        }
    }

    fn guard(&self, guard: crate::MultiGuard) -> MultiGuard {
        let workers = self.workers.clone();
        MultiGuard { guard, workers }
    }
}

/// The blocking version of [`crate::MultiGuard`]; the methods that only read are in [`MultiHeld`].
#[derive(Debug)]
#[must_use = "the locks are released as soon as their guard is dropped"]
pub struct MultiGuard {
    guard: crate::MultiGuard,
    workers: Workers,
}

impl MultiGuard {
    /// Returns a view of this guard that can be cloned and passed around, but not released. See
    /// [`crate::MultiGuard::held`].
    pub fn held(&self) -> MultiHeld {
        self.guard.held()
    }

    /// Waits until one of the locks is lost, for at most `timeout`; returns `None` if all are still held then.
    pub fn wait_lost(&self, timeout: Duration) -> Option<Lost> {
        self.workers.wait_lost(timeout, self.guard.lost())
    }

    /// Extends fixed leases to this long from now, if they would expire sooner. See [`crate::MultiGuard::extend`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::MultiGuard::extend`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.workers.run(self.guard.extend(lease))
    }

    /// Releases all locks, whatever the outcome for each, and reports whether they were still held. See
    /// [`crate::MultiGuard::release`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::MultiGuard::release`].
    pub fn release(self) -> Result<(), Error> {
        self.workers.run(self.guard.release())
    }

    fn release_after_run(self) -> Result<(), Error> {
        self.workers.run(self.guard.release_after_run())
    }

    /// Stops renewing and leaves the locks to their leases. See [`crate::MultiGuard::forget`].
    pub fn forget(self) {
        self.guard.forget();
    }
}

impl Deref for MultiGuard {
    type Target = MultiHeld;

    fn deref(&self) -> &MultiHeld {
        &self.guard
    }
}
