//! Looking at locks from outside, without `async`.

use std::sync::Arc;

use super::watch::Watch;
use super::worker::Worker;
use crate::{Diagnostic, Error, ListProgress, LockInfo};

/// [`crate::Admin`] without `async`.
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let _guard = client.lock("stock").acquire()?;
/// assert_eq!(client.admin().list("*")?.len(), 1);
/// assert!(client.admin().force_release("stock")?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    admin: crate::Admin,
    worker: Arc<Worker>,
}

impl Admin {
    pub(super) const fn new(admin: crate::Admin, worker: Arc<Worker>) -> Self {
        Self { admin, worker }
    }

    /// As [`crate::Admin::inspect`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn inspect(&self, name: &str) -> Result<Option<LockInfo>, Error> {
        let (admin, name) = (self.admin.clone(), name.to_owned());
        self.worker.run(async move { admin.inspect(&name).await })?
    }

    /// As [`crate::Admin::list`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn list(&self, pattern: &str) -> Result<Vec<LockInfo>, Error> {
        let (admin, pattern) = (self.admin.clone(), pattern.to_owned());
        self.worker.run(async move { admin.list(&pattern).await })?
    }

    /// As [`crate::Admin::list_with_progress`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn list_with_progress(
        &self,
        pattern: &str,
        report: impl FnMut(ListProgress) + Send + 'static,
    ) -> Result<Vec<LockInfo>, Error> {
        let (admin, pattern) = (self.admin.clone(), pattern.to_owned());
        self.worker
            .run(async move { admin.list_with_progress(&pattern, report).await })?
    }

    /// As [`crate::Admin::force_release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn force_release(&self, name: &str) -> Result<bool, Error> {
        let (admin, name) = (self.admin.clone(), name.to_owned());
        self.worker
            .run(async move { admin.force_release(&name).await })?
    }

    /// As [`crate::Admin::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(&self, name: &str, owner: &str) -> Result<bool, Error> {
        let admin = self.admin.clone();
        let (name, owner) = (name.to_owned(), owner.to_owned());
        self.worker
            .run(async move { admin.release(&name, &owner).await })?
    }

    /// As [`crate::Admin::watch`].
    ///
    /// ```
    /// # fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::blocking::Client::connect("memory:")?;
    /// # let _guard = client.lock("order:7").acquire()?;
    /// for event in client.admin().watch("order:*").take(1) {
    ///     let event = event?;
    ///     println!("{}: {:?}", event.name, event.change);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn watch(&self, pattern: impl Into<String>) -> Watch {
        Watch::new(self.admin.watch(pattern), self.worker.clone())
    }

    /// As [`crate::Admin::examine`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn examine(&self) -> Result<Vec<Diagnostic>, Error> {
        let admin = self.admin.clone();
        self.worker.run(async move { admin.examine().await })?
    }

    /// As [`crate::Admin::examine_with_probe`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn examine_with_probe(&self) -> Result<Vec<Diagnostic>, Error> {
        let admin = self.admin.clone();
        self.worker
            .run(async move { admin.examine_with_probe().await })?
    }
}
