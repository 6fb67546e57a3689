//! The guard of several locks: proof that all of them are held.

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::driver::hold_ref::HoldRef;
use crate::driver::{multi, release};
use crate::error::{Error, Lost, Risk};
use crate::held::{Held, LostSignal, until_lost};
use crate::multi_lock::Any;
use crate::options::check_lease;
use crate::protocol::permit::permits_of;
use crate::protocol::{FencingToken, PermitId};
use crate::run_error::RunError;

/// Several locks that are held. Dropping the guard releases all of them in the background.
///
/// The guard is lost as soon as one of the locks is. The others stay held until it is released or dropped.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # use distlock::MultiLock;
/// let client = distlock::Client::connect("memory:").await?;
/// let both = MultiLock::new([client.lock("b").into(), client.lock("a").into()]);
/// let guard = both.acquire().await?;
/// assert!(guard.names().eq(["a", "b"]));
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the locks are released as soon as their guard is dropped"]
pub struct MultiGuard {
    hold_refs: Vec<HoldRef>,
    held: MultiHeld,
}

impl MultiGuard {
    pub(crate) fn new(hold_refs: Vec<HoldRef>) -> Self {
        let holds = hold_refs
            .iter()
            .map(|hold_ref| Held::new(hold_ref.hold().clone()));
        let held = MultiHeld(holds.collect());
        Self { hold_refs, held }
    }

    /// Returns a view of this guard that can be cloned and passed around, but not released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::MultiLock::new([client.lock("a").into()]).acquire().await?;
    /// let held = guard.held();
    /// guard.release().await?;
    /// assert!(!held.is_held());
    /// # Ok(()) }
    /// ```
    pub fn held(&self) -> MultiHeld {
        self.held.clone()
    }

    /// Does the work, and drops it at its next await if one of the locks is lost. Returns its output only if all of
    /// them were held until its end.
    ///
    /// [`Guard::while_held`](crate::Guard::while_held) says what cancellation cannot stop: such work should get a
    /// [`MultiHeld`] and check it between its steps.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if one of the locks was lost before the work ended; it names that lock. If the work ran to its
    /// end nevertheless, without an await at which it could be dropped, [`RunError::into_output`] returns its output.
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
    /// let guard = distlock::MultiLock::new([client.lock("a").into()]).acquire().await?;
    /// assert_eq!(guard.while_held(async { 42 }).await?, 42);
    /// # guard.release().await }
    /// ```
    pub async fn while_held<W>(&self, work: W) -> Result<W::Output, RunError<W::Output>>
    where
        W: Future + Send,
        W::Output: Send,
    {
        self.check()?;
        let released = || Error::Released {
            name: self.names().collect::<Vec<_>>().join(", ").into(),
        };
        until_lost(self.lost(), work, || self.check(), released).await
    }

    /// Extends fixed leases to this long from now, if they would expire sooner.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if one of the locks is no longer held; [`Error::InvalidOption`] for leases that are kept alive
    /// by themselves. If several fail, [`Error::Several`] has the error of each; the other leases are extended.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, each lease is either unchanged or extended.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::{Lease, MultiLock};
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let both = MultiLock::new([client.lock("a").into(), client.lock("b").into()]);
    /// let guard = both.with_lease(Lease::Fixed(Duration::from_secs(10))).acquire().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// # guard.release().await }
    /// ```
    pub fn extend(
        &self,
        lease: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let mut renewed = self.hold_refs.iter();
        let renewed = renewed.find(|hold_ref| hold_ref.hold().keeps_alive(hold_ref));
        let wrong = match renewed {
            Some(hold_ref) => Err(Error::kept_alive(&hold_ref.hold().subject.name)),
            None => check_lease(lease),
        };
        let holds = self
            .hold_refs
            .iter()
            .map(|hold_ref| hold_ref.hold().clone());
        let holds: Vec<_> = holds.collect();
        async move {
            wrong?;
            multi::extend(holds, lease).await.map_err(Error::all_of)
        }
    }

    /// Releases all locks, whatever the outcome for each, and reports whether they were still held.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if one of them was no longer held; any other error means that a store has not replied, and the
    /// release goes on in the background. If several fail, [`Error::Several`] has the error of each.
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
    /// let guard = distlock::MultiLock::new([client.lock("a").into()]).acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<(), Error> {
        multi::release_all(self.hold_refs)
            .await
            .map_err(Error::all_of)
    }

    /// Releases the locks after work that was done under them; fails only if one of them was not held until then.
    pub(crate) async fn release_after_run(self) -> Result<(), Error> {
        multi::release_after_run(self.hold_refs)
            .await
            .map_err(Error::all_of)
    }

    /// Stops renewing and leaves the locks to their leases, as [`Guard::forget`](crate::Guard::forget) does.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// distlock::MultiLock::new([client.lock("a").into()]).acquire().await?.forget();
    /// assert!(client.lock("a").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn forget(self) {
        self.hold_refs.into_iter().for_each(release::forget);
    }
}

impl Deref for MultiGuard {
    type Target = MultiHeld;

    fn deref(&self) -> &MultiHeld {
        &self.held
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.describe(f, "MultiGuard")
    }
}

/// A view of several held locks: it can read everything that their guard can, but cannot release or extend the locks.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// let lock = distlock::MultiLock::new([client.lock("a").into(), client.lock("b").into()]);
/// lock.run(async |held: distlock::MultiHeld| assert!(held.is_held())).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MultiHeld(Vec<Held<Any>>);

impl MultiHeld {
    /// Returns the locks' names, each lock once.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let twice = distlock::MultiLock::new([client.lock("a").into(), client.lock("a").into()]);
    /// assert!(twice.acquire().await?.names().eq(["a"]));
    /// # Ok(()) }
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Held::name)
    }

    /// Returns whether all of them can be relied on now: by the clock, without a request. Once false, the result is
    /// never true again.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = distlock::MultiLock::new([client.lock("a").into()]);
    /// assert!(lock.acquire().await?.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.0.iter().all(Held::is_held)
    }

    /// Does the same as [`is_held`](Self::is_held), but returns an error, for use with `?`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the lock and the reason; [`Error::Released`] if the locks were released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// distlock::MultiLock::new([client.lock("a").into()]).acquire().await?.check()?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        self.0.iter().try_for_each(Held::check)
    }

    /// Returns the time until which all of them can be relied on if no further renewal succeeds: the earliest expiry.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::MultiLock::new([client.lock("a").into()]).acquire().await?;
    /// assert!(guard.valid_until() > std::time::Instant::now());
    /// # Ok(()) }
    /// ```
    pub fn valid_until(&self) -> Instant {
        let ends = self.0.iter().map(Held::valid_until);
        ends.min().expect("a multi-lock has at least one member")
    }

    /// Returns how long all of them can still be relied on if no further renewal succeeds; zero once one is lost, or
    /// they are released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::MultiLock::new([client.lock("a").into()]).acquire().await?;
    /// assert!(guard.remaining().as_secs() > 20);
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        let left = self.0.iter().map(Held::remaining);
        left.min().unwrap_or_default()
    }

    /// Returns the danger to one of them while all are still valid: a renewal has failed and is being retried, or a
    /// store has restarted or failed over.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::MultiLock::new([client.lock("a").into()]).acquire().await?;
    /// assert_eq!(guard.at_risk(), None);
    /// # Ok(()) }
    /// ```
    pub fn at_risk(&self) -> Option<Risk> {
        if !self.is_held() {
            return None;
        }
        self.0.iter().find_map(Held::at_risk)
    }

    /// Returns the token of the fenced lock of this name, if there is one among them.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = distlock::MultiLock::new([client.lock("a").into(), client.fenced_lock("b").into()]);
    /// let guard = lock.acquire().await?;
    /// assert!(guard.token("a").is_none() && guard.token("b").is_some());
    /// # Ok(()) }
    /// ```
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        let mut named = self.0.iter().filter(|held| held.name() == name);
        named.find_map(|held| held.hold.token)
    }

    /// Returns the owner's id in the store for the lock of this name, if it is one of them.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::MultiLock::new([client.lock("a").into()]).acquire().await?;
    /// let seen = client.admin().inspect("a").await?.expect("it is held");
    /// assert_eq!(guard.owner("a"), Some(seen.holders[0].owner.clone()));
    /// # guard.release().await }
    /// ```
    pub fn owner(&self, name: &str) -> Option<String> {
        let held = self.0.iter().find(|held| held.name() == name);
        held.map(Held::owner)
    }

    /// Returns the permit ids of the semaphore of this name, if it is among them.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let exports = client.semaphore("exports").with_permits(3);
    /// let guard = distlock::MultiLock::new([client.lock("a").into(), exports.permits(2).into()]).acquire().await?;
    /// assert_eq!((guard.permit_ids("exports").len(), guard.permit_ids("a").len()), (2, 0));
    /// # guard.release().await }
    /// ```
    pub fn permit_ids(&self, name: &str) -> Vec<PermitId> {
        let of_it = |held: &&Held<Any>| {
            let subject = &held.hold.subject;
            subject.kind.has_permits() && &*subject.name == name
        };
        let held = self.0.iter().filter(of_it);
        held.flat_map(|held| permits_of(held.hold.owner)).collect()
    }

    /// Returns a future that resolves to the name and the reason when the first of them is lost, or to `None` when all
    /// are released.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the future can be dropped and `lost` called again. All such futures resolve to the same value.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = distlock::MultiLock::new([client.lock("a").into(), client.lock("b").into()]);
    /// let guard = lock.acquire().await?;
    /// client.admin().force_release("b").await?;
    /// assert_eq!(&*guard.lost().await.unwrap().name, "b");
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> FirstLost {
        FirstLost(self.0.iter().map(Held::lost).collect())
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        f.debug_struct(what)
            .field("locks", &self.0)
            .field("held", &self.is_held())
            .finish()
    }
}

impl fmt::Debug for MultiHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f, "MultiHeld")
    }
}

/// The future of [`MultiHeld::lost`]. All clones resolve to the same value.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// let guard = distlock::MultiLock::new([client.lock("a").into()]).acquire().await?;
/// let lost: distlock::FirstLost = guard.lost();
/// guard.release().await?;
/// assert_eq!(lost.await, None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct FirstLost(Vec<LostSignal>);

impl Future for FirstLost {
    type Output = Option<Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waits = false;
        for signal in &mut self.0 {
            match Pin::new(signal).poll(cx) {
                Poll::Ready(Some(lost)) => return Poll::Ready(Some(lost)),
                // The lock was released; a later poll returns the same.
                Poll::Ready(None) => {}
                Poll::Pending => waits = true,
            }
        }
        if waits {
            Poll::Pending
        } else {
            Poll::Ready(None)
        }
    }
}
