//! Proof that a lock is held.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::driver::claim::Claim;
use crate::driver::release;
use crate::error::Error;
use crate::held::{Held, until_lost};
use crate::lock::Plain;
use crate::options::check_lease;

/// A lock that is held. Dropping it gives the lock back, in the background.
///
/// It can say that it is no longer valid: by the clock ([`Held::is_held`], [`Held::check`]), by a signal
/// ([`Held::lost`]), or by dropping the work done under it ([`Guard::while_held`]). Everything that only
/// looks is in [`Held`], which a guard can be used as.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let guard = client.lock("invoice:42").acquire().await?;
/// guard.while_held(async { /* send it */ }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub struct Guard<K = Plain> {
    claim: Claim,
    held: Held<K>,
}

impl<K> Guard<K> {
    pub(crate) fn new(claim: Claim) -> Self {
        let hold = claim.hold().clone();
        Self {
            claim,
            held: Held::new(hold),
        }
    }

    /// A view of this guard that can be cloned and passed around, but not released.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// let held = guard.held();
    /// guard.release().await?;
    /// assert!(!held.is_held());
    /// # Ok(()) }
    /// ```
    pub fn held(&self) -> Held<K> {
        self.held.clone()
    }

    /// Does the work, and drops it the moment the lock is lost.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the work was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work; the guard stays.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// let answer = guard.while_held(async { 42 }).await?;
    /// assert_eq!(answer, 42);
    /// # guard.release().await }
    /// ```
    pub async fn while_held<W>(&self, work: W) -> Result<W::Output, Error>
    where
        W: Future + Send,
        W::Output: Send,
    {
        self.check()?;
        let released = || Error::Released {
            name: self.hold.subject.name.clone(),
        };
        until_lost(self.lost(), work, released).await
    }

    /// Makes a fixed lease last this long from now, if it would end sooner.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is no longer ours; [`Error::InvalidOption`] for a lease that is kept
    /// alive by itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the lease as long as it was, or as long as asked for.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::Lease;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = client.lock("import").with_lease(Lease::Fixed(Duration::from_secs(10)));
    /// let guard = lock.acquire().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// # guard.release().await }
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        check_lease(lease).map_err(|error| error.about(self.name()))?;
        if self.hold.keeps_alive(&self.claim) {
            return Err(Error::kept_alive(self.name()));
        }
        self.hold
            .extend(lease)
            .await
            .map_err(|trouble| Error::of(&self.hold.subject.name, trouble))
    }

    /// Gives the lock back and says whether it was still ours.
    ///
    /// Dropping the guard does the same but cannot tell you. A lock with several guards of one owner is
    /// given back with the last of them.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it was not ours any more, saying whether it merely expired or was taken over.
    /// Any other error means that the store has not answered; the release goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the release to the background.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<(), Error> {
        let held = self.held;
        release::release(self.claim)
            .await
            .inspect(|()| tracing::debug!(name = ?held.name(), owner = held.owner(), "given back"))
            .map_err(|trouble| Error::of(&held.hold.subject.name, trouble))
    }

    /// Stops renewing and leaves the lock to its lease, for whoever is to find it taken after this
    /// process has gone.
    ///
    /// The embedded store (`sqlite:`) frees it with the process, unless its client lets holds end with their leases alone
    /// ([`ClientBuilder::holds_end_with`](crate::ClientBuilder::holds_end_with)).
    ///
    /// Where the owner has other guards on the lock, it is given back with the last of those.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.lock("cooldown").acquire().await?.forget();
    /// assert!(client.lock("cooldown").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn forget(self) {
        release::forget(self.claim);
    }
}

impl<K> Deref for Guard<K> {
    type Target = Held<K>;

    fn deref(&self) -> &Held<K> {
        &self.held
    }
}

impl<K> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.describe(f, "Guard")
    }
}
