//! The semaphore that only counts, without `async`.

use std::sync::Arc;
use std::time::Duration;

use super::worker::Worker;
use crate::Error;

/// [`crate::CountingSemaphore`] without `async`.
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let slots = client.counting_semaphore("slots");
/// slots.try_set(3)?;
/// slots.acquire(2)?;
/// assert!(!slots.try_acquire(2)?);
/// slots.release(2)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CountingSemaphore {
    pub(super) semaphore: crate::CountingSemaphore,
    pub(super) worker: Arc<Worker>,
}

impl CountingSemaphore {
    /// As [`crate::CountingSemaphore::try_set`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_set(&self, permits: u32) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.try_set(permits).await })?
    }

    /// As [`crate::CountingSemaphore::set`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn set_available(&self, permits: u32) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.set_available(permits).await })?
    }

    /// As [`crate::CountingSemaphore::available`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn available(&self) -> Result<i64, Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.available().await })?
    }

    /// As [`crate::CountingSemaphore::acquire`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire(&self, permits: u32) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.acquire(permits).await })?
    }

    /// As [`crate::CountingSemaphore::try_acquire`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_acquire(&self, permits: u32) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.try_acquire(permits).await })?
    }

    /// As [`crate::CountingSemaphore::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire_timeout(&self, permits: u32, wait: Duration) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.acquire_timeout(permits, wait).await })?
    }

    /// As [`crate::CountingSemaphore::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(&self, permits: u32) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.release(permits).await })?
    }

    /// As [`crate::CountingSemaphore::add`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn add(&self, permits: i64) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.add(permits).await })?
    }

    /// As [`crate::CountingSemaphore::drain`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn drain(&self) -> Result<u64, Error> {
        let semaphore = self.semaphore.clone();
        self.worker.run(async move { semaphore.drain().await })?
    }

    /// As [`crate::CountingSemaphore::delete`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn delete(&self) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.worker.run(async move { semaphore.delete().await })?
    }

    /// As [`crate::CountingSemaphore::name`].
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }
}
