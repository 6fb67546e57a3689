//! The latch without `async`.

use std::sync::Arc;
use std::time::Duration;

use super::worker::Worker;
use crate::Error;

/// [`crate::Latch`] without `async`.
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let loaded = client.latch("loaded");
/// assert!(loaded.try_set(1)?);
/// assert_eq!(loaded.count_down()?, 0);
/// loaded.wait()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    pub(super) latch: crate::Latch,
    pub(super) worker: Arc<Worker>,
}

impl Latch {
    /// As [`crate::Latch::try_set`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_set(&self, count: u64) -> Result<bool, Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.try_set(count).await })?
    }

    /// As [`crate::Latch::count_down`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn count_down(&self) -> Result<u64, Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.count_down().await })?
    }

    /// As [`crate::Latch::count`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn count(&self) -> Result<u64, Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.count().await })?
    }

    /// As [`crate::Latch::wait`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait(&self) -> Result<(), Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.wait().await })?
    }

    /// As [`crate::Latch::wait_timeout`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait_timeout(&self, wait: Duration) -> Result<bool, Error> {
        let latch = self.latch.clone();
        self.worker
            .run(async move { latch.wait_timeout(wait).await })?
    }

    /// As [`crate::Latch::delete`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn delete(&self) -> Result<bool, Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.delete().await })?
    }

    /// As [`crate::Latch::name`].
    pub fn name(&self) -> &str {
        self.latch.name()
    }
}
