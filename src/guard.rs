//! The guard: proof that a lock is held.

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

/// A lock that is held. Dropping the guard releases the lock in the background.
///
/// A guard can report that it is no longer valid: by the clock ([`Held::is_held`], [`Held::check`]), by a signal
/// ([`Held::lost`]), or by dropping the work done under it ([`Guard::while_held`]). All methods that only read are in
/// [`Held`], to which a guard dereferences.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let guard = client.lock("invoice:42").acquire().await?;
/// guard.while_held(async { /* send it */ }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
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

    /// Returns a view of this guard that can be cloned and passed around, but not released.
    ///
    /// # Examples
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

    /// Does the work, and drops it at its next await if the lock is lost. Returns its output only if the lock was held
    /// until its end, by the clock and by the last renewal. The store is not asked at the end:
    /// [`release`](Self::release) does that, and [`Lock::run`](crate::Lock::run).
    ///
    /// # What cancellation cannot stop
    ///
    /// A future is dropped where it awaits, and nowhere else. Code that computes or blocks runs until its next await.
    /// Work that was started elsewhere (`spawn_blocking`, threads, child processes, spawned tasks) is not stopped at
    /// all: each of them should get a [`Held`] and check it between its steps. A request that was sent is not recalled
    /// either. Where a late write does harm, use a [fenced lock](crate::Client::fenced_lock).
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

    /// Extends a fixed lease to this long from now, if it would expire sooner.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is no longer held; [`Error::InvalidOption`] for a lease that is kept alive by
    /// itself.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lease is either unchanged or extended.
    ///
    /// # Examples
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
    /// Dropping the guard also releases the lock, in the background, but cannot report an error. If one owner has
    /// several guards, the lock is released with the last of them.
    ///
    /// If another task of this client waits for the lock, it may be handed off in memory, without a request to the store:
    /// `Ok` then means that the lock was valid by the clock and by the last renewal. [`Lock::run`](crate::Lock::run) always
    /// asks the store.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was no longer held, with the reason: it expired, was removed, or another client
    /// holds it. A guard of several permits returns this error also if some of them were [released by
    /// id](crate::Semaphore::release) before: the others are released. Any other error means that the store has not
    /// replied; the release goes on in the background.
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
                    "distlock::release",
                    DEBUG,
                    { lock: debug(held.hold.subject.name.clone()), owner: held.owner() },
                    "released"
                );
            })
            .map_err(|error| Error::of(&held.hold.subject.name, error))
    }

    /// Releases the lock after work that was done under it; fails only if the lock was not held until then.
    pub(crate) async fn release_after_run(self) -> Result<(), Error> {
        let name = self.held.hold.subject.name.clone();
        let concluded = release::release_after_run(self.hold_ref).await;
        concluded.map_err(|error| Error::of(&name, error))
    }

    /// Stops renewing and leaves the lock to its lease, so that it stays held after this process has ended.
    ///
    /// The embedded store (`sqlite:`) releases it with the process, unless the client's holds end with their leases
    /// alone ([`ClientBuilder::release_on`](crate::ClientBuilder::release_on)).
    ///
    /// If the owner has other guards on the lock, it is released with the last of those.
    ///
    /// # Examples
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
