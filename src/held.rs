//! The read-only view of a held lock, and the signal of its loss.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::driver::hold::Hold;
use crate::error::{Error, Lost, LostReason, Risk};
use crate::lock::{Fenced, Plain};
use crate::protocol::FencingToken;
use crate::run_error::RunError;

/// A view of a held lock: it can read everything that the guard can, but cannot release or extend the lock.
///
/// # Examples
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
pub struct Held<K = Plain> {
    pub(crate) hold: Arc<Hold>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Held<K> {
    pub(crate) const fn new(hold: Arc<Hold>) -> Self {
        Self {
            hold,
            kind: PhantomData,
        }
    }

    /// Returns the lock's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.lock("stock").acquire().await?.name(), "stock");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        &self.hold.subject.name
    }

    /// Returns the owner's id in the store: `<client uuid>:<number>`, with a new number for each acquisition.
    ///
    /// # Examples
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

    /// Returns how many live guards the owner has on this lock.
    ///
    /// # Examples
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

    /// Returns whether the lock can be relied on now: by the clock, without a request.
    ///
    /// Once false, the result is never true again. True is no promise for the next instant: the process may be stopped
    /// between this result and its next action.
    ///
    /// # Examples
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

    /// Does the same as [`Held::is_held`], but returns an error, for use with `?`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the reason; [`Error::Released`] if the lock was released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// guard.check()?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        let hold = &self.hold;
        match hold.lost() {
            Some(reason) => Err(lost_event(hold, reason).into()),
            None if hold.is_held() => Ok(()),
            None => Err(Error::Released {
                name: hold.subject.name.clone(),
            }),
        }
    }

    /// Returns the time until which the lock can be relied on if no further renewal succeeds. It is a time of the
    /// standard library's clock, also if tokio's clock is paused; in that case use [`remaining`](Self::remaining).
    ///
    /// # Examples
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

    /// Returns how long the lock can still be relied on if no further renewal succeeds; zero once it is lost or
    /// released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// assert!(guard.remaining().as_secs() > 20);
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Returns the danger to a lock that is still valid: a renewal has failed and is being retried, or the store has
    /// changed.
    ///
    /// # Examples
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

    /// Returns a future that resolves to the reason when the lock is lost, or to `None` when it is released.
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

    pub(crate) fn describe(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        f.debug_struct(what)
            .field("name", &self.hold.subject.name)
            .field("owner", &self.hold.owner)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl Held<Fenced> {
    /// Returns the token of this grant, greater than that of every grant before it. Guards of one owner on one hold
    /// have the same token.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.fenced_lock("stock").acquire().await?;
    /// println!("UPDATE … WHERE token <= {}", guard.token());
    /// # guard.release().await }
    /// ```
    pub fn token(&self) -> FencingToken {
        let none = FencingToken::new(0);
        // A store that grants a fenced lock always returns a token.
        self.hold.token.unwrap_or(none)
    }
}

impl<K> Clone for Held<K> {
    fn clone(&self) -> Self {
        Self::new(self.hold.clone())
    }
}

impl<K> fmt::Debug for Held<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f, "Held")
    }
}

/// The future of [`Held::lost`]. All clones resolve to the same value.
///
/// # Examples
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
        // Check the clock at every poll, not only after a wakeup: work that is raced against this future must not be
        // polled after the lease has expired.
        if let Some(reason) = this.hold.lost() {
            return Poll::Ready(Some(lost_event(&this.hold, reason)));
        }
        let wait = this
            .wait
            .get_or_insert_with(|| Box::pin(this.hold.clone().ended()));
        let reason = std::task::ready!(wait.as_mut().poll(cx));
        // A later poll starts again and finds the same result.
        this.wait = None;
        Poll::Ready(reason.map(|reason| lost_event(&this.hold, reason)))
    }
}

fn lost_event(hold: &Hold, reason: LostReason) -> Lost {
    let cause = hold.renewal_error();
    Lost {
        name: hold.subject.name.clone(),
        reason,
        cause: cause.filter(|_| reason == LostReason::Expired),
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
            .field("name", &self.hold.subject.name)
            .finish_non_exhaustive()
    }
}

/// Does the work, and drops it when its lock is lost. The output counts only if the lock was held until the work ended.
pub(crate) async fn until_lost<W>(
    lost: impl Future<Output = Option<Lost>> + Send,
    work: W,
    check: impl Fn() -> Result<(), Error> + Send,
    released: impl FnOnce() -> Error + Send,
) -> Result<W::Output, RunError<W::Output>>
where
    W: Future + Send,
    W::Output: Send,
{
    tokio::select! {
        biased;
        lost = lost => match lost {
            Some(lost) => Err(Error::from(lost).into()),
            // Only the guard's owner can release the lock, and the work borrows the guard.
            None => Err(released().into()),
        },
        // The last poll may have taken longer than the lease.
        output = work => RunError::unless_held(check(), output),
    }
}
