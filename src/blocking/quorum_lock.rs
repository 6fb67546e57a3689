//! One lock on most of several servers, without `async`.

use std::ops::Deref;
use std::time::Duration;

use super::member::{Member, Workers};
use crate::{Error, Lease, Lost, QuorumHeld, RunError};

/// [`crate::QuorumLock`] without `async`.
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # use distlock::blocking::{Client, QuorumLock};
/// let (a, b) = (Client::connect("memory:")?, Client::connect("memory:")?);
/// let lock = QuorumLock::new([a.lock("nightly").into(), b.lock("nightly").into()]);
/// let guard = lock.acquire()?;
/// assert_eq!(guard.votes(), 2);
/// # guard.release() }
/// ```
#[derive(Clone, Debug)]
pub struct QuorumLock {
    lock: crate::QuorumLock,
    workers: Workers,
}

impl QuorumLock {
    /// As [`crate::QuorumLock::new`].
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        let (members, workers) = Workers::of(members);
        let lock = crate::QuorumLock::new(members);
        Self { lock, workers }
    }

    /// As [`crate::QuorumLock::with_lease`].
    #[must_use]
    pub fn with_lease(self, lease: Lease) -> Self {
        let lock = self.lock.with_lease(lease);
        Self { lock, ..self }
    }

    /// As [`crate::QuorumLock::with_longest_lease`].
    #[must_use]
    pub fn with_longest_lease(self, longest: Duration) -> Self {
        let lock = self.lock.with_longest_lease(longest);
        Self { lock, ..self }
    }

    /// As [`crate::QuorumLock::acquire`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire(&self) -> Result<QuorumGuard, Error> {
        let guard = self.workers.run(self.lock.acquire())?;
        Ok(self.guard(guard))
    }

    /// As [`crate::QuorumLock::try_acquire`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<QuorumGuard>, Error> {
        let guard = self.workers.run(self.lock.try_acquire())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// As [`crate::QuorumLock::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire_timeout(&self, wait: Duration) -> Result<Option<QuorumGuard>, Error> {
        let guard = self.workers.run(self.lock.acquire_timeout(wait))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires, works, releases. `Ok` means that the work ran under the lock from its beginning to its end.
    ///
    /// A thread cannot be stopped from outside: ask the [`QuorumHeld`] that the work is given, between its steps.
    ///
    /// # Errors
    ///
    /// As [`QuorumLock::acquire`], and [`Error::Lost`] if it was lost before the work ended;
    /// [`RunError::into_output`] has what the work returned.
    pub fn run<T>(&self, work: impl FnOnce(QuorumHeld) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire()?;
        let output = work(guard.held());
        match guard.conclude() {
            Ok(()) => Ok(output),
            Err(error) => Err(RunError::with_output(error, output)),
        }
    }

    fn guard(&self, guard: crate::QuorumGuard) -> QuorumGuard {
        let workers = self.workers.clone();
        QuorumGuard { guard, workers }
    }
}

/// [`crate::QuorumGuard`] without `async`; what only looks is in [`QuorumHeld`].
#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub struct QuorumGuard {
    guard: crate::QuorumGuard,
    workers: Workers,
}

impl QuorumGuard {
    /// As [`crate::QuorumGuard::held`].
    pub fn held(&self) -> QuorumHeld {
        self.guard.held()
    }

    /// Waits until the lock is lost, for at most `timeout`; `None` if it is still held then.
    pub fn wait_lost(&self, timeout: Duration) -> Option<Lost> {
        self.workers.wait_lost(timeout, self.guard.lost())
    }

    /// As [`crate::QuorumGuard::extend`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.workers.run(self.guard.extend(lease))
    }

    /// As [`crate::QuorumGuard::release`].
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

    /// As [`crate::QuorumGuard::forget`].
    pub fn forget(self) {
        self.guard.forget();
    }
}

impl Deref for QuorumGuard {
    type Target = QuorumHeld;

    fn deref(&self) -> &QuorumHeld {
        &self.guard
    }
}
