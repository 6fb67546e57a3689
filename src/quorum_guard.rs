//! The guard of a quorum lock: proof that the lock is held on most of several servers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::quorum::quorum_hold::QuorumHold;
use crate::error::Error;
use crate::held::until_lost;
use crate::options::check_lease;
use crate::quorum_held::QuorumHeld;
use crate::run_error::RunError;

/// A lock that is held on most of several servers. Dropping the guard releases it on all of them in the background.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # use distlock::QuorumLock;
/// # let client = distlock::Client::connect("memory:").await?;
/// let guard = QuorumLock::new([client.lock("a").into()]).acquire().await?;
/// assert_eq!(guard.votes(), 1);
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct QuorumGuard {
    held: QuorumHeld,
}

impl QuorumGuard {
    pub(crate) const fn new(quorum_hold: Arc<QuorumHold>) -> Self {
        let held = QuorumHeld(quorum_hold);
        Self { held }
    }

    /// Returns a view of this guard that can be cloned and passed around, but not released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?;
    /// let held = guard.held();
    /// guard.release().await?;
    /// assert!(!held.is_held());
    /// # Ok(()) }
    /// ```
    pub fn held(&self) -> QuorumHeld {
        self.held.clone()
    }

    /// Does the work, and drops it at its next await if the lock is lost. Returns its output only if the lock was held
    /// until its end.
    ///
    /// [`Guard::while_held`](crate::Guard::while_held) says what cancellation cannot stop: such work should get a
    /// [`QuorumHeld`] and check it between its steps.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost before the work ended. If the work ran to its end nevertheless, without an
    /// await at which it could be dropped, [`RunError::into_output`] returns its output.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work; the guard stays.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?;
    /// assert_eq!(guard.while_held(async { 42 }).await?, 42);
    /// # guard.release().await }
    /// ```
    pub async fn while_held<W>(&self, work: W) -> Result<W::Output, RunError<W::Output>>
    where
        W: Future + Send,
        W::Output: Send,
    {
        self.check()?;
        let released = || self.released();
        until_lost(self.lost(), work, || self.check(), released).await
    }

    /// Extends a fixed lease to this long from now on most servers, if it would expire sooner. The new lease may be no
    /// longer than the time for which clients ignore a restarted server: the lock's own lease, or its [longest
    /// lease](crate::QuorumLock::with_longest_lease).
    ///
    /// # Errors
    ///
    /// [`Error::Several`] with the error of each server if too few servers extend the lease; the lock then stays held
    /// until its lease expires. [`Error::Lost`] if the lock is no longer held; [`Error::InvalidOption`] for a lease
    /// that is kept alive by itself, or too long.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lease is either unchanged or extended.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::{Lease, QuorumLock};
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = QuorumLock::new([client.lock("a").into()])
    ///     .with_lease(Lease::Fixed(Duration::from_secs(10)))
    ///     .with_longest_lease(Duration::from_secs(60));
    /// let guard = lock.acquire().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// # guard.release().await }
    /// ```
    pub fn extend(
        &self,
        lease: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let may = self.may_last(lease);
        let quorum_hold = self.held.0.clone();
        async move {
            may?;
            quorum_hold.extend(lease).await.map_err(Error::all_of)
        }
    }

    fn may_last(&self, lease: Duration) -> Result<(), Error> {
        let quorum_hold = &self.held.0;
        if quorum_hold.keeps_alive() {
            return Err(Error::kept_alive(quorum_hold.name()));
        }
        check_lease(lease).map_err(|error| error.about(quorum_hold.name()))?;
        match quorum_hold.longest_lease() {
            Some(longest) if lease > longest => {
                let reason = format!(
                    "a restarted server is excluded for only {longest:?}; set `with_longest_lease` to {lease:?} in all clients"
                );
                Err(Error::invalid_option("extend", reason).about(quorum_hold.name()))
            }
            _ => self.check(),
        }
    }

    /// Releases the lock on every server, and reports whether it was still held. Servers that do not reply in time are
    /// sent the release in the background, and so are servers that have not yet replied to the acquire request.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was no longer held. Any other error means that too few servers have replied to know
    /// that the lock is free; [`Error::Several`] has the error of each.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release completes in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<(), Error> {
        self.held.0.release().await.map_err(Error::all_of)
    }

    /// Releases the lock after work that was done under it; fails only if most servers did not hold it until then.
    pub(crate) async fn release_after_run(self) -> Result<(), Error> {
        self.held.0.release_after_run().await.map_err(Error::all_of)
    }

    /// Stops renewing and leaves the lock to its leases, as [`Guard::forget`](crate::Guard::forget) does. Servers that
    /// have not yet replied to the acquire request are sent a release.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?.forget();
    /// assert!(client.lock("a").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn forget(self) {
        self.held.0.forget();
    }
}

impl Drop for QuorumGuard {
    fn drop(&mut self) {
        self.held.0.abandon();
    }
}

impl Deref for QuorumGuard {
    type Target = QuorumHeld;

    fn deref(&self) -> &QuorumHeld {
        &self.held
    }
}

impl fmt::Debug for QuorumGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.describe(f, "QuorumGuard")
    }
}
