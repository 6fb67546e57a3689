//! Proof that a lock is held.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use tracing::field::debug;

use crate::driver::hold_ref::HoldRef;
use crate::driver::release::{self, HandOff};
use crate::engine::events::emit_in_call;
use crate::error::Error;
use crate::held::{Held, until_lost};
use crate::lock::Plain;
use crate::options::check_lease;
use crate::run_error::RunError;

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
    hold_ref: HoldRef,
    held: Held<K>,
}

impl<K> Guard<K> {
    pub(crate) fn new(hold_ref: HoldRef) -> Self {
        let hold = hold_ref.hold().clone();
        Self {
            hold_ref,
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

    /// Does the work, and drops it at its next await once the lock is lost. What it returns is returned only if the lock was held
    /// until its end, by the clock and by what the last renewal said. The store is not asked at the end:
    /// [`release`](Self::release) does that, and [`Lock::run`](crate::Lock::run).
    ///
    /// # What cancellation cannot stop
    ///
    /// A future is dropped where it awaits, and nowhere else. Code that computes or blocks runs until its next await. What the
    /// work has started elsewhere (`spawn_blocking`, threads, child processes, spawned tasks) is not stopped at all: each of them
    /// should get a [`Held`] and ask it between its steps. A request that was sent is not recalled either. Where a late
    /// write does harm, use a [fenced lock](crate::Client::fenced_lock).
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost before the work ended. If the work ran to its end nevertheless, without an
    /// await at which it could be dropped, [`RunError::into_output`] has what it returned.
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
    pub async fn while_held<W>(&self, work: W) -> Result<W::Output, RunError<W::Output>>
    where
        W: Future + Send,
        W::Output: Send,
    {
        self.check()?;
        let released = || Error::Released {
            name: self.hold.subject.name.clone(),
        };
        until_lost(self.lost(), work, || self.check(), released).await
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
        if self.hold.keeps_alive(&self.hold_ref) {
            return Err(Error::kept_alive(self.name()));
        }
        self.hold
            .extend(lease)
            .await
            .map_err(|error| Error::of(&self.hold.subject.name, error))
    }

    /// Releases the lock and reports whether it was still held.
    ///
    /// Dropping the guard does the same but cannot tell you. A lock with several guards of one owner is
    /// given back with the last of them.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was no longer held, with the reason: it expired, was removed, or another client holds it. A guard
    /// of several permits returns this error also if some of them were
    /// [returned by id](crate::Semaphore::release) before: the others are released.
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
        release::release(self.hold_ref, HandOff::InMemory)
            .await
            .inspect(|()| {
                emit_in_call!(
                    held.hold.core.events,
                    DEBUG,
                    { name: debug(held.hold.subject.name.clone()), owner: held.owner() },
                    "given back"
                );
            })
            .map_err(|error| Error::of(&held.hold.subject.name, error))
    }

    /// Releases the lock after work that was done under it; fails only if it was not held until then.
    pub(crate) async fn conclude(self) -> Result<(), Error> {
        let name = self.held.hold.subject.name.clone();
        let concluded = release::conclude(self.hold_ref).await;
        concluded.map_err(|error| Error::of(&name, error))
    }

    /// Stops renewing and leaves the lock to its lease, for whoever is to find it taken after this
    /// process has gone.
    ///
    /// The embedded store (`sqlite:`) frees it with the process, unless its client lets holds end with their leases alone
    /// ([`ClientBuilder::release_on`](crate::ClientBuilder::release_on)).
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
        release::forget(self.hold_ref);
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
