//! Several locks without `async`.

use std::ops::Deref;
use std::time::Duration;

use super::member::{Member, Workers};
use crate::{Error, Lease, Lost, MultiHeld, RunError};

/// [`crate::MultiLock`] without `async`.
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
    /// As [`crate::MultiLock::new`].
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        let (members, workers) = Workers::of(members);
        let lock = crate::MultiLock::new(members);
        Self { lock, workers }
    }

    /// As [`crate::MultiLock::with_lease`].
    #[must_use]
    pub fn with_lease(self, lease: Lease) -> Self {
        let lock = self.lock.with_lease(lease);
        Self { lock, ..self }
    }

    /// As [`crate::MultiLock::acquire`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire(&self) -> Result<MultiGuard, Error> {
        let guard = self.workers.run(self.lock.acquire())?;
        Ok(self.guard(guard))
    }

    /// As [`crate::MultiLock::try_acquire`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        let guard = self.workers.run(self.lock.try_acquire())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// As [`crate::MultiLock::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire_timeout(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        let guard = self.workers.run(self.lock.acquire_timeout(wait))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires, works, releases. `Ok` means that the work ran under all locks from its beginning to its end.
    ///
    /// A thread cannot be stopped from outside: ask the [`MultiHeld`] that the work is given, between its steps.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::acquire`], and [`Error::Lost`] if one of them was lost before the work ended;
    /// [`RunError::into_output`] has what the work returned.
    pub fn run<T>(&self, work: impl FnOnce(MultiHeld) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire()?;
        let output = work(guard.held());
        match guard.conclude() {
            Ok(()) => Ok(output),
            Err(error) => Err(RunError::with_output(error, output)),
        }
    }

    fn guard(&self, guard: crate::MultiGuard) -> MultiGuard {
        let workers = self.workers.clone();
        MultiGuard { guard, workers }
    }
}

/// [`crate::MultiGuard`] without `async`; what only looks is in [`MultiHeld`].
#[derive(Debug)]
#[must_use = "the locks are given back as soon as their guard is dropped"]
pub struct MultiGuard {
    guard: crate::MultiGuard,
    workers: Workers,
}

impl MultiGuard {
    /// As [`crate::MultiGuard::held`].
    pub fn held(&self) -> MultiHeld {
        self.guard.held()
    }

    /// Waits until one of the locks is lost, for at most `timeout`; `None` if all are still held then.
    pub fn wait_lost(&self, timeout: Duration) -> Option<Lost> {
        self.workers.wait_lost(timeout, self.guard.lost())
    }

    /// As [`crate::MultiGuard::extend`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.workers.run(self.guard.extend(lease))
    }

    /// As [`crate::MultiGuard::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(self) -> Result<(), Error> {
        self.workers.run(self.guard.release())
    }

    fn conclude(self) -> Result<(), Error> {
        self.workers.run(self.guard.conclude())
    }

    /// As [`crate::MultiGuard::forget`].
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
