//! The blocking version of the operator's view.

use std::sync::Arc;

use super::watch::Watch;
use super::worker::Worker;
use crate::{Diagnostic, Error, ListProgress, LockInfo};

/// The blocking version of [`crate::Admin`].
///
/// # Examples
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

    /// Returns a lock with its holders; `None` if it is free. See [`crate::Admin::inspect`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Admin::inspect`].
    pub fn inspect(&self, name: &str) -> Result<Option<LockInfo>, Error> {
        let (admin, name) = (self.admin.clone(), name.to_owned());
        self.worker.run(async move { admin.inspect(&name).await })?
    }

    /// Returns the held locks whose names match a pattern, sorted by name. See [`crate::Admin::list`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Admin::list`].
    pub fn list(&self, pattern: &str) -> Result<Vec<LockInfo>, Error> {
        let (admin, pattern) = (self.admin.clone(), pattern.to_owned());
        self.worker.run(async move { admin.list(&pattern).await })?
    }

    /// Does the same as [`list`](Self::list), and calls `report` after each step: a large keyspace takes many. See
    /// [`crate::Admin::list_with_progress`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Admin::list_with_progress`].
    pub fn list_with_progress(
        &self,
        pattern: &str,
        report: impl FnMut(ListProgress) + Send + 'static,
    ) -> Result<Vec<LockInfo>, Error> {
        let (admin, pattern) = (self.admin.clone(), pattern.to_owned());
        self.worker
            .run(async move { admin.list_with_progress(&pattern, report).await })?
    }

    /// Releases a lock by force, whoever holds it, and reports whether it was held. See [`crate::Admin::force_release`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Admin::force_release`].
    pub fn force_release(&self, name: &str) -> Result<bool, Error> {
        let (admin, name) = (self.admin.clone(), name.to_owned());
        self.worker
            .run(async move { admin.force_release(&name).await })?
    }

    /// Releases the hold of exactly this owner, and reports whether there was one. See [`crate::Admin::release`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Admin::release`].
    pub fn release(&self, name: &str, owner: &str) -> Result<bool, Error> {
        let admin = self.admin.clone();
        let (name, owner) = (name.to_owned(), owner.to_owned());
        self.worker
            .run(async move { admin.release(&name, &owner).await })?
    }

    /// Returns a watch over the locks whose names match a pattern, as in [`list`](Self::list). See [`crate::Admin::watch`].
    ///
    /// # Examples
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

    /// Checks whether the store is fit for locks: returns findings, each with what to do about it. See
    /// [`crate::Admin::examine`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Admin::examine`].
    pub fn examine(&self) -> Result<Vec<Diagnostic>, Error> {
        let admin = self.admin.clone();
        self.worker.run(async move { admin.examine().await })?
    }

    /// Does the same as [`examine`](Self::examine), and also acquires and releases a lock with a name that no other client
    /// uses: on the server, on each master of a cluster, or in the file. See [`crate::Admin::examine_with_probe`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Admin::examine_with_probe`].
    pub fn examine_with_probe(&self) -> Result<Vec<Diagnostic>, Error> {
        let admin = self.admin.clone();
        self.worker
            .run(async move { admin.examine_with_probe().await })?
    }
}
