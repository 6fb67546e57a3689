//! Proof that a lock is held, and the news when it is not any more.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::driver::hold::{Claim, Hold};
use crate::driver::release;
use crate::error::{Error, Lost, LostReason, Risk};
use crate::lock::Exclusive;
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
pub struct Guard<K = Exclusive> {
    claim: Claim,
    held: Held,
    kind: PhantomData<fn() -> K>,
}

impl<K> Guard<K> {
    pub(crate) fn new(claim: Claim) -> Self {
        let hold = claim.hold().clone();
        Self {
            claim,
            held: Held { hold },
            kind: PhantomData,
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
    pub fn held(&self) -> Held {
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
        tokio::select! {
            biased;
            lost = self.lost() => match lost {
                Some(lost) => Err(lost.into()),
                // Only the guard's owner can release it, and that is borrowed here.
                None => Err(Lost { name: self.hold.name.clone(), reason: LostReason::Closed }.into()),
            },
            done = work => Ok(done),
        }
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
        check_lease(lease)?;
        if self.hold.keeps_alive(&self.claim) {
            return Err(Error::InvalidOption {
                option: "extend",
                reason: "this lease is kept alive by itself; use Lease::Fixed".into(),
            });
        }
        release::extend(&self.hold, lease)
            .await
            .map_err(|trouble| Error::of(&self.hold.name, trouble))
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
        let name = self.held.hold.name.clone();
        release::release(self.claim)
            .await
            .map_err(|trouble| Error::of(&name, trouble))
    }

    /// Stops renewing and leaves the lock to its lease, for whoever is to find it taken after this
    /// process has gone.
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
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl<K> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.describe(f, "Guard")
    }
}

/// A view of a held lock: everything a guard can tell, nothing it can do.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// client.lock("report").run(async |held: distlock::Held| {
///     assert!(held.is_held());
///     assert_eq!(held.name(), "report");
/// }).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Held {
    hold: Arc<Hold>,
}

impl Held {
    /// The lock's name.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.lock("stock").acquire().await?.name(), "stock");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        &self.hold.name
    }

    /// The owner as it stands in the store: `<client uuid>:<number>`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// let seen = client.admin().inspect("stock").await?.unwrap();
    /// assert_eq!(seen.holders[0].owner, guard.owner());
    /// # Ok(()) }
    /// ```
    pub fn owner(&self) -> String {
        self.hold.owner.to_string()
    }

    /// How many live guards the owner has on this lock.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.lock("stock").acquire().await?.hold_count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn hold_count(&self) -> u32 {
        self.hold.count()
    }

    /// Whether the lock can be relied on now: by the clock, without asking anyone.
    ///
    /// Once false, never true again. True is no promise for the next instant: a process may be stopped
    /// between this answer and what it does next.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert!(client.lock("stock").acquire().await?.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// [`Held::is_held`] for `?`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the reason; [`Error::Closed`] if it was given back.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// guard.check()?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        let name = self.hold.name.clone();
        match self.hold.lost() {
            Some(reason) => Err(Error::Lost { name, reason }),
            None if self.hold.is_held() => Ok(()),
            None => Err(Error::Closed { name }),
        }
    }

    /// Until when the lock can be relied on if no further renewal succeeds.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// assert!(guard.valid_until() > std::time::Instant::now());
    /// # Ok(()) }
    /// ```
    pub fn valid_until(&self) -> Instant {
        self.hold.valid_until_instant()
    }

    /// How long the lock can still be relied on if no further renewal succeeds; zero once it is lost
    /// or given back.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// assert!(guard.remaining().as_secs() >= 29);
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// What threatens the lock while it is still valid: a renewal has failed and is being tried again.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.lock("stock").acquire().await?.at_risk(), None);
    /// # Ok(()) }
    /// ```
    pub fn at_risk(&self) -> Option<Risk> {
        self.hold.risk()
    }

    /// Resolves when the lock is lost, with the reason, or when it is given back, with `None`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and asked for again; it resolves the same way for everyone.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// let lost = guard.lost();
    /// client.admin().force_release("stock").await?;
    /// println!("{}", lost.await.unwrap());
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> LostSignal {
        LostSignal {
            hold: self.hold.clone(),
            wait: None,
        }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        f.debug_struct(what)
            .field("name", &self.hold.name)
            .field("owner", &self.hold.owner)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f, "Held")
    }
}

/// The future of [`Held::lost`]. Clones resolve alike.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// let guard = client.lock("stock").acquire().await?;
/// let lost: distlock::LostSignal = guard.lost();
/// let watcher = tokio::spawn(lost.clone());
/// guard.release().await?;
/// assert_eq!(watcher.await.unwrap(), None);
/// assert_eq!(lost.await, None);
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless they are awaited"]
pub struct LostSignal {
    hold: Arc<Hold>,
    wait: Option<Pin<Box<dyn Future<Output = Option<LostReason>> + Send + Sync>>>,
}

impl Future for LostSignal {
    type Output = Option<Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let wait = this
            .wait
            .get_or_insert_with(|| Box::pin(this.hold.clone().ended()));
        let reason = std::task::ready!(wait.as_mut().poll(cx));
        // Polled again, it looks again, and finds the same.
        this.wait = None;
        let name = this.hold.name.clone();
        Poll::Ready(reason.map(|reason| Lost { name, reason }))
    }
}

impl Clone for LostSignal {
    fn clone(&self) -> Self {
        Self {
            hold: self.hold.clone(),
            wait: None,
        }
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostSignal")
            .field("name", &self.hold.name)
            .finish_non_exhaustive()
    }
}
