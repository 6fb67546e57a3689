//! The blocking version of one lock on most of several servers.

use std::ops::Deref;
use std::time::Duration;

use super::member::{Member, Workers};
use crate::{Error, Lease, Lost, QuorumHeld, RunError};

/// The blocking version of [`crate::QuorumLock`].
///
/// # Examples
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
    /// Returns the same lock on each of these servers. See [`crate::QuorumLock::new`].
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        let (members, workers) = Workers::of(members);
        let lock = crate::QuorumLock::new(members);
        Self { lock, workers }
    }

    /// Sets how long the lock stays held on each server if it is not released. See [`crate::QuorumLock::with_lease`].
    #[must_use]
    pub fn with_lease(self, lease: Lease) -> Self {
        let lock = self.lock.with_lease(lease);
        Self { lock, ..self }
    }

    /// Sets the longest lease that any client uses for this lock, other libraries included: a server has no vote for this
    /// long after its restart. See [`crate::QuorumLock::with_longest_lease`].
    #[must_use]
    pub fn with_longest_lease(self, longest: Duration) -> Self {
        let lock = self.lock.with_longest_lease(longest);
        Self { lock, ..self }
    }

    /// Acquires the lock on most servers, waiting as long as it takes. See [`crate::QuorumLock::acquire`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::QuorumLock::acquire`].
    pub fn acquire(&self) -> Result<QuorumGuard, Error> {
        let guard = self.workers.run(self.lock.acquire())?;
        Ok(self.guard(guard))
    }

    /// Acquires the lock if most servers grant it now. See [`crate::QuorumLock::try_acquire`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::QuorumLock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<QuorumGuard>, Error> {
        let guard = self.workers.run(self.lock.try_acquire())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires the lock, waiting for at most `wait`, everything included; returns `None` if other clients prevent a
    /// majority even then. See [`crate::QuorumLock::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::QuorumLock::acquire_timeout`].
    pub fn acquire_timeout(&self, wait: Duration) -> Result<Option<QuorumGuard>, Error> {
        let guard = self.workers.run(self.lock.acquire_timeout(wait))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires the lock, does the work and releases the lock. `Ok` means that the lock was held from the beginning of
    /// the work to its end.
    ///
    /// A thread cannot be stopped from outside: the work should check its [`QuorumHeld`] between its steps.
    ///
    /// # Errors
    ///
    /// The errors of [`QuorumLock::acquire`], and [`Error::Lost`] if the lock was lost before the work ended;
    /// [`RunError::into_output`] then returns the output of the work.
    pub fn run<T>(&self, work: impl FnOnce(QuorumHeld) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire()?;
        let output = work(guard.held());
        match guard.release_after_run() {
            Ok(()) => Ok(output),
            Err(error) => Err(RunError::with_output(error, output)),
        }
    }

    fn guard(&self, guard: crate::QuorumGuard) -> QuorumGuard {
        let workers = self.workers.clone();
        QuorumGuard { guard, workers }
    }
}

/// The blocking version of [`crate::QuorumGuard`]; the methods that only read are in [`QuorumHeld`].
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct QuorumGuard {
    guard: crate::QuorumGuard,
    workers: Workers,
}

impl QuorumGuard {
    /// Returns a view of this guard that can be cloned and passed around, but not released. See
    /// [`crate::QuorumGuard::held`].
    pub fn held(&self) -> QuorumHeld {
        self.guard.held()
    }

    /// Waits until the lock is lost, for at most `timeout`; returns `None` if it is still held then.
    pub fn wait_lost(&self, timeout: Duration) -> Option<Lost> {
        self.workers.wait_lost(timeout, self.guard.lost())
    }

    /// Extends a fixed lease to this long from now on most servers, if it would expire sooner. See
    /// [`crate::QuorumGuard::extend`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::QuorumGuard::extend`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.workers.run(self.guard.extend(lease))
    }

    /// Releases the lock on every server, and reports whether it was still held. See [`crate::QuorumGuard::release`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::QuorumGuard::release`].
    pub fn release(self) -> Result<(), Error> {
        self.workers.run(self.guard.release())
    }

    fn release_after_run(self) -> Result<(), Error> {
        self.workers.run(self.guard.release_after_run())
    }

    /// Stops renewing and leaves the lock to its leases. See [`crate::QuorumGuard::forget`].
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
