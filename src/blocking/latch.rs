//! The blocking version of the latch.

use std::sync::Arc;
use std::time::Duration;

use super::worker::Worker;
use crate::Error;

/// The blocking version of [`crate::Latch`].
///
/// # Examples
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
    /// Closes an open latch by setting its count, and reports whether it was open. See [`crate::Latch::try_set`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Latch::try_set`].
    pub fn try_set(&self, count: u64) -> Result<bool, Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.try_set(count).await })?
    }

    /// Counts down by one, and returns the remaining count. See [`crate::Latch::count_down`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Latch::count_down`].
    pub fn count_down(&self) -> Result<u64, Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.count_down().await })?
    }

    /// Returns the remaining count; zero if the latch is open. See [`crate::Latch::count`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Latch::count`].
    pub fn count(&self) -> Result<u64, Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.count().await })?
    }

    /// Waits until the latch is open, as long as it takes. See [`crate::Latch::wait`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Latch::wait`].
    pub fn wait(&self) -> Result<(), Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.wait().await })?
    }

    /// Waits until the latch is open, for at most `wait`, and reports whether it is. See [`crate::Latch::wait_timeout`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Latch::wait_timeout`].
    pub fn wait_timeout(&self, wait: Duration) -> Result<bool, Error> {
        let latch = self.latch.clone();
        self.worker
            .run(async move { latch.wait_timeout(wait).await })?
    }

    /// Opens the latch whatever its count, and reports whether it was closed. See [`crate::Latch::delete`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Latch::delete`].
    pub fn delete(&self) -> Result<bool, Error> {
        let latch = self.latch.clone();
        self.worker.run(async move { latch.delete().await })?
    }

    /// Returns the latch's name. See [`crate::Latch::name`].
    pub fn name(&self) -> &str {
        self.latch.name()
    }
}
