//! The read-only view of a quorum lock, and the signal of its loss.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::driver::quorum::quorum_hold::{QuorumEnd, QuorumHold};
use crate::error::{Error, Lost, Risk};

/// A view of a lock that is held on most of several servers: it can read everything that the guard can, but cannot
/// release or extend the lock.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// let lock = distlock::QuorumLock::new([client.lock("a").into()]);
/// lock.run(async |held: distlock::QuorumHeld| assert!(held.is_held())).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct QuorumHeld(pub(crate) Arc<QuorumHold>);

impl QuorumHeld {
    /// Returns the lock's name, the same on every server.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = distlock::QuorumLock::new([client.lock("a").into()]);
    /// assert_eq!(lock.acquire().await?.name(), "a");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns how many servers have a vote; most of them have to hold the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::Client;
    /// # let (a, b) = (Client::connect("memory:").await?, Client::connect("memory:").await?);
    /// let lock = distlock::QuorumLock::new([a.lock("x").into(), b.lock("x").into()]);
    /// assert_eq!(lock.acquire().await?.members(), 2);
    /// # Ok(()) }
    /// ```
    pub fn members(&self) -> usize {
        self.0.members()
    }

    /// Returns on how many servers the lock is held now: by the clock, without a request. Zero once it is lost or
    /// released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = distlock::QuorumLock::new([client.lock("a").into()]);
    /// assert_eq!(lock.acquire().await?.votes(), 1);
    /// # Ok(()) }
    /// ```
    pub fn votes(&self) -> usize {
        self.0.votes()
    }

    /// Returns whether a majority can be relied on now: by the clock, without a request. Once false, the result is
    /// never true again.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = distlock::QuorumLock::new([client.lock("a").into()]);
    /// assert!(lock.acquire().await?.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.0.check_end().is_none()
    }

    /// Does the same as [`is_held`](Self::is_held), but returns an error, for use with `?`.
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
    /// distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?.check()?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        match self.0.check_end() {
            None => Ok(()),
            Some(QuorumEnd::Lost(name, reason)) => Err(Error::lost(name, reason)),
            Some(QuorumEnd::Released) => Err(self.released()),
        }
    }

    /// Returns the time until which the lock can be relied on if no further renewal succeeds: at that time the majority
    /// is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?;
    /// assert!(guard.valid_until() > std::time::Instant::now());
    /// # Ok(()) }
    /// ```
    pub fn valid_until(&self) -> Instant {
        self.0.valid_until()
    }

    /// Returns how long the lock can still be relied on if no further renewal succeeds: Redlock's validity. Zero once
    /// it is lost or released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?;
    /// assert!(guard.remaining().as_secs() > 20);
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns the danger to a lock that is still valid: on half of the servers, or more, it is lost or could not be
    /// renewed.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?;
    /// assert_eq!(guard.at_risk(), None);
    /// # Ok(()) }
    /// ```
    pub fn at_risk(&self) -> Option<Risk> {
        self.0.risk()
    }

    /// Returns a future that resolves when the lock is lost, to one of the missing holds and the reason, or to `None`
    /// when it is released.
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
    /// let guard = distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?;
    /// client.admin().force_release("a").await?;
    /// assert_eq!(&*guard.lost().await.unwrap().name, "a");
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> MajorityLost {
        MajorityLost {
            quorum_hold: self.0.clone(),
            wait: None,
        }
    }

    pub(crate) fn released(&self) -> Error {
        let name = self.0.name().clone();
        Error::Released { name }
    }

    pub(crate) fn describe(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        f.debug_struct(what)
            .field("name", &self.name())
            .field("members", &self.members())
            .field("votes", &self.votes())
            .field("held", &self.is_held())
            .finish()
    }
}

impl fmt::Debug for QuorumHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f, "QuorumHeld")
    }
}

/// The future of [`QuorumHeld::lost`]. All clones resolve to the same value.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// let guard = distlock::QuorumLock::new([client.lock("a").into()]).acquire().await?;
/// let lost: distlock::MajorityLost = guard.lost();
/// guard.release().await?;
/// assert_eq!(lost.await, None);
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless they are awaited"]
pub struct MajorityLost {
    quorum_hold: Arc<QuorumHold>,
    wait: Option<Pin<Box<dyn Future<Output = QuorumEnd> + Send + Sync>>>,
}

impl Future for MajorityLost {
    type Output = Option<Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Check the clock at every poll, not only after a wakeup: work that is raced against this future must not be
        // polled after the lease has expired.
        let end = match this.quorum_hold.check_end() {
            Some(end) => end,
            None => {
                let quorum_hold = &this.quorum_hold;
                let wait = this
                    .wait
                    .get_or_insert_with(|| Box::pin(quorum_hold.clone().ended()));
                ready!(wait.as_mut().poll(cx))
            }
        };
        // A later poll starts again and finds the same result.
        this.wait = None;
        Poll::Ready(match end {
            QuorumEnd::Lost(name, reason) => Some(Lost {
                name,
                reason,
                cause: None,
            }),
            QuorumEnd::Released => None,
        })
    }
}

impl Clone for MajorityLost {
    fn clone(&self) -> Self {
        Self {
            quorum_hold: self.quorum_hold.clone(),
            wait: None,
        }
    }
}

impl fmt::Debug for MajorityLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MajorityLost").finish_non_exhaustive()
    }
}
