//! Proof that several locks are held.

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

/// Several locks that are held. Dropping it gives all of them back, in the background.
///
/// It is lost as soon as one of them is. The others stay held until it is released or dropped.
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
#[must_use = "the locks are given back as soon as their guard is dropped"]
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

    /// A view of this guard that can be cloned and passed around, but not released.
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

    /// Does the work, and drops it at its next await once one of the locks is lost. What it returns is returned only if all of them
    /// were held until its end.
    ///
    /// [`Guard::while_held`](crate::Guard::while_held) says what cancellation cannot stop: such work should get a [`MultiHeld`] and ask
    /// it between its steps.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if one of the locks was lost before the work ended; it names that lock. If the work ran to its end
    /// nevertheless, without an await at which it could be dropped, [`RunError::into_output`] has what it returned.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work; the guard stays.
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

    /// Makes fixed leases last this long from now, where they would end sooner.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if one of them is no longer ours; [`Error::InvalidOption`] for leases that are kept alive by
    /// themselves. If there is trouble with several, [`Error::Several`] has that of each; the others last as long as was asked for.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves each lease as long as it was, or as long as asked for.
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

    /// Gives all of them back, whatever becomes of each, and says whether they were still ours.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if one of them was no longer held; any other error means that a store has not answered, and the
    /// release goes on in the background. If there is trouble with several, [`Error::Several`] has that of each.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the release to the background.
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
    pub(crate) async fn conclude(self) -> Result<(), Error> {
        multi::conclude(self.hold_refs).await.map_err(Error::all_of)
    }

    /// Stops renewing and leaves the locks to their leases, as [`Guard::forget`](crate::Guard::forget) does.
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

/// A view of several held locks: everything their guard can tell, nothing it can do.
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
    /// The locks' names, each lock once.
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

    /// Whether all of them can be relied on now: by the clock, without asking anyone. Once false, never true again.
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

    /// [`is_held`](Self::is_held) for `?`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the lock and the reason; [`Error::Released`] if they were given back.
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

    /// Until when all of them can be relied on if no further renewal succeeds: the soonest of their ends.
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
        ends.min().expect("there is at least one lock")
    }

    /// How long all of them can still be relied on if no further renewal succeeds; zero once one is lost, or they are given
    /// back.
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

    /// What threatens one of them while all are still valid: a renewal has failed and is being tried again.
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

    /// The token of the fenced lock of this name, if there is one among them.
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

    /// Who holds the lock of this name in the store, if it is one of them.
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

    /// The permits of the semaphore of this name, if they are among them.
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

    /// Resolves when the first of them is lost, with its name and the reason, or when all are given back, with `None`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and asked for again; it resolves the same way for everyone.
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

/// The future of [`MultiHeld::lost`]. Clones resolve alike.
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
                // Given back; it says the same when it is asked again.
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
