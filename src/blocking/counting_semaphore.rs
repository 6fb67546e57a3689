//! The blocking version of the counting semaphore.

use std::sync::Arc;
use std::time::Duration;

use super::worker::Worker;
use crate::Error;

/// The blocking version of [`crate::CountingSemaphore`].
///
/// # Examples
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
    /// Sets the number of permits unless it has been set before, and reports whether it did. See
    /// [`crate::CountingSemaphore::try_set`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::try_set`].
    pub fn try_set(&self, permits: u32) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.try_set(permits).await })?
    }

    /// Sets the number of available permits, whatever it was and however many are in use. See
    /// [`crate::CountingSemaphore::set_available`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::set_available`].
    pub fn set_available(&self, permits: u32) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.set_available(permits).await })?
    }

    /// Returns the number of available permits: zero if it was never set, negative if permits in use were
    /// [removed](Self::add). See [`crate::CountingSemaphore::available`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::available`].
    pub fn available(&self) -> Result<i64, Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.available().await })?
    }

    /// Acquires N permits, all or none, waiting as long as it takes. See [`crate::CountingSemaphore::acquire`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::acquire`].
    pub fn acquire(&self, permits: u32) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.acquire(permits).await })?
    }

    /// Acquires N permits if they are available now, and reports whether it did. See
    /// [`crate::CountingSemaphore::try_acquire`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::try_acquire`].
    pub fn try_acquire(&self, permits: u32) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.try_acquire(permits).await })?
    }

    /// Acquires N permits, waiting for at most `wait`, everything included, and reports whether it did. See
    /// [`crate::CountingSemaphore::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::acquire_timeout`].
    pub fn acquire_timeout(&self, permits: u32, wait: Duration) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.acquire_timeout(permits, wait).await })?
    }

    /// Releases N permits. See [`crate::CountingSemaphore::release`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::release`].
    pub fn release(&self, permits: u32) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.release(permits).await })?
    }

    /// Adds N permits, or removes them if N is negative: the number of available permits may become negative until enough
    /// have been released. See [`crate::CountingSemaphore::add`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::add`].
    pub fn add(&self, permits: i64) -> Result<(), Error> {
        let semaphore = self.semaphore.clone();
        self.worker
            .run(async move { semaphore.add(permits).await })?
    }

    /// Acquires all available permits, and returns how many there were. See [`crate::CountingSemaphore::drain`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::drain`].
    pub fn drain(&self) -> Result<u64, Error> {
        let semaphore = self.semaphore.clone();
        self.worker.run(async move { semaphore.drain().await })?
    }

    /// Deletes the semaphore, and reports whether it existed. See [`crate::CountingSemaphore::delete`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::CountingSemaphore::delete`].
    pub fn delete(&self) -> Result<bool, Error> {
        let semaphore = self.semaphore.clone();
        self.worker.run(async move { semaphore.delete().await })?
    }

    /// Returns the semaphore's name. See [`crate::CountingSemaphore::name`].
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }
}
