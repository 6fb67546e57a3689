//! The blocking version of the semaphore.

use std::sync::Arc;

use super::Lock;
use super::worker::Worker;
use crate::{Error, Permit, PermitCount, PermitId};

/// The blocking version of [`crate::Semaphore`].
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let exports = client.semaphore("exports").with_permits(2);
/// let permit = exports.permit().acquire()?;
/// assert_eq!(exports.count()?.available, 1);
/// # permit.release() }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(super) semaphore: crate::Semaphore,
    pub(super) worker: Arc<Worker>,
}

impl Semaphore {
    /// Sets the total that the semaphore is created with, if it was never set: the first request for a permit creates it.
    /// See [`crate::Semaphore::with_permits`].
    #[must_use]
    pub fn with_permits(self, total: u32) -> Self {
        let semaphore = self.semaphore.with_permits(total);
        Self { semaphore, ..self }
    }

    /// Returns a lock that acquires one permit. See [`crate::Semaphore::permit`].
    pub fn permit(&self) -> Lock<Permit> {
        self.permits(1)
    }

    /// Returns a lock that acquires `count` permits together, at most 4,096. See [`crate::Semaphore::permits`].
    pub fn permits(&self, count: u32) -> Lock<Permit> {
        Lock {
            lock: self.semaphore.permits(count),
            worker: self.worker.clone(),
        }
    }

    /// Sets the total number of permits, including those in use. See [`crate::Semaphore::set_total`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Semaphore::set_total`].
    pub fn set_total(&self, total: u32) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.set_total(total).await })
    }

    /// Sets the total number of permits unless it has been set before, and reports whether it did. See
    /// [`crate::Semaphore::try_set`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Semaphore::try_set`].
    pub fn try_set(&self, total: u32) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.try_set(total).await })
    }

    /// Returns the number of permits; none, if it was never set. See [`crate::Semaphore::count`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Semaphore::count`].
    pub fn count(&self) -> Result<PermitCount, Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.count().await })
    }

    /// Releases one permit by its id, whoever holds it, and reports whether it was in use. See
    /// [`crate::Semaphore::release`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Semaphore::release`].
    pub fn release(&self, permit: PermitId) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.release(permit).await })
    }

    /// Deletes the semaphore with the permits in use, and reports whether it existed. See [`crate::Semaphore::delete`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Semaphore::delete`].
    pub fn delete(&self) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.delete().await })
    }

    /// Returns the semaphore's name. See [`crate::Semaphore::name`].
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }

    fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.worker.run(future)?
    }
}
