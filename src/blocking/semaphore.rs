//! The semaphore without `async`.

use std::sync::Arc;

use super::Lock;
use super::worker::Worker;
use crate::{Error, Permit, PermitCount, PermitId};

/// [`crate::Semaphore`] without `async`.
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
    /// As [`crate::Semaphore::with_permits`].
    #[must_use]
    pub fn with_permits(self, total: u32) -> Self {
        let semaphore = self.semaphore.with_permits(total);
        Self { semaphore, ..self }
    }

    /// As [`crate::Semaphore::permit`].
    pub fn permit(&self) -> Lock<Permit> {
        self.permits(1)
    }

    /// As [`crate::Semaphore::permits`].
    pub fn permits(&self, count: u32) -> Lock<Permit> {
        Lock {
            lock: self.semaphore.permits(count),
            worker: self.worker.clone(),
        }
    }

    /// As [`crate::Semaphore::set`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn set_total(&self, total: u32) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.set_total(total).await })
    }

    /// As [`crate::Semaphore::try_set`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_set(&self, total: u32) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.try_set(total).await })
    }

    /// As [`crate::Semaphore::count`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn count(&self) -> Result<PermitCount, Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.count().await })
    }

    /// As [`crate::Semaphore::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(&self, permit: PermitId) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.release(permit).await })
    }

    /// As [`crate::Semaphore::delete`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn delete(&self) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.run(async move { semaphore.delete().await })
    }

    /// As [`crate::Semaphore::name`].
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }

    fn run<T: Send + 'static>(
        &self,
        asking: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.worker.run(asking)?
    }
}
