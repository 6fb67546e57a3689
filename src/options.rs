//! The options of a lock: lease, durability and wait mode.

use std::time::Duration;

use crate::error::Error;
use crate::protocol::acquire::WaitMode;
use crate::protocol::permit::MAX_PERMITS;

/// Lower bound of a lease: a round trip may take longer than a shorter one, which would have expired before the grant
/// arrives.
const SHORTEST_LEASE: Duration = Duration::from_millis(10);
/// Upper bound of a lease: longer than any process lives, and short enough for stores that count milliseconds in 64
/// bits.
const LONGEST_LEASE: Duration = Duration::from_secs(100 * 366 * 86_400);

/// How long a lock stays held if it is not released.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
/// use distlock::{Client, Lease};
///
/// let client = Client::connect("memory:").await?;
/// // Renewed while the guard lives; expires 10 s after the process has crashed.
/// let lock = client.lock("report").with_lease(Lease::KeepAlive(Duration::from_secs(10)));
/// // Expires after an hour, whatever happens.
/// let once = client.lock("nightly").with_lease(Lease::Fixed(Duration::from_secs(3600)));
/// # let _ = (lock.acquire().await?, once.acquire().await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Lease {
    /// The lease expires this long after the grant, unless it is [extended](crate::Guard::extend).
    Fixed(Duration),
    /// The lease is renewed for as long as the guard lives, and expires this long after its process has ended.
    KeepAlive(Duration),
}

impl Lease {
    pub(crate) const fn duration(self) -> Duration {
        match self {
            Self::Fixed(lease) | Self::KeepAlive(lease) => lease,
        }
    }

    pub(crate) fn check(self) -> Result<Self, Error> {
        check_lease(self.duration())?;
        Ok(self)
    }
}

/// Redisson's watchdog timeout: thirty seconds, renewed.
impl Default for Lease {
    fn default() -> Self {
        Self::KeepAlive(Duration::from_secs(30))
    }
}

/// The condition under which a grant counts, on a server that has replicas.
///
/// A server that crashes may have granted a lock without having replicated the grant; the promoted replica then grants
/// the lock again. Grants that the replicas have acknowledged survive the failover. `docs/guarantees.md` says how many
/// acknowledgements to ask for, and what else is needed to be safe.
///
/// # Examples
///
/// ```no_run
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
/// use distlock::{Client, Durability};
///
/// // A server with two replicas, either of which may be promoted.
/// let replicas = Durability::Replicas { acks: 2, timeout: Duration::from_millis(500) };
/// let client = Client::builder("redis://127.0.0.1/").durability(replicas).connect().await?;
/// # drop(client); Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Durability {
    /// A grant counts when the server has replied.
    #[default]
    Server,
    /// A grant or a renewal counts when this many replicas have acknowledged it, too. If fewer do so in time, a grant
    /// is undone ([`Error::NotReplicated`](crate::Error::NotReplicated)), and after a renewal the guard is valid for no
    /// longer than before.
    Replicas {
        /// The number of acknowledgements: to be safe, all replicas that could be promoted.
        acks: u32,
        /// The timeout for the acknowledgements; shorter than the client's
        /// [`command_timeout`](crate::ClientBuilder::command_timeout).
        timeout: Duration,
    },
}

impl Durability {
    pub(crate) fn check(self, command_timeout: Duration) -> Result<Self, Error> {
        let Self::Replicas { acks, timeout } = self else {
            return Ok(self);
        };
        let reason = if acks == 0 {
            "`acks` must be at least 1; use Durability::Server to wait for no replica"
        } else if timeout < Duration::from_millis(1) {
            "its timeout must be at least one millisecond"
        } else if timeout >= command_timeout {
            "its timeout must be shorter than command_timeout"
        } else {
            return Ok(self);
        };
        Err(Error::invalid_option("durability", reason))
    }
}

/// How a waiter learns that the lock may be free.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Backoff, Client, Wait};
///
/// let client = Client::connect("memory:").await?;
/// // Without a subscription, as Redisson's spin lock.
/// let guard = client.lock("busy").with_wait(Wait::Poll(Backoff::default())).acquire().await?;
/// # guard.release().await }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Wait {
    /// By a notification from the store, with a poll in case a notification is lost: every two seconds, in the queue of
    /// a fair lock every three seconds. A simple lock is polled ten times a second, since other libraries do not
    /// notify.
    #[default]
    Notify,
    /// By polling, with growing pauses.
    ///
    /// A waiter in poll mode is unknown to other clients, so they do not yield to it: while the tasks of another client
    /// queue for the same lock, it has to poll often to find the lock free. In the queue of a fair lock, however, it
    /// has its entry, and readers wait behind a writer that polls; in these two cases it never pauses for longer than a
    /// subscribed waiter.
    Poll(Backoff),
}

/// Pauses that double from the first to the longest, each shortened at random by up to a half.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use distlock::{Backoff, Wait};
///
/// let gentle = Wait::Poll(Backoff::new(Duration::from_millis(50), Duration::from_secs(1)));
/// # let _ = gentle;
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Returns a backoff with pauses from `first` to `longest`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let often = distlock::Backoff::new(Duration::from_millis(5), Duration::from_millis(20));
    /// # let _ = often;
    /// ```
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }
}

/// One to 128 milliseconds, as Redisson's spin lock.
impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(1), Duration::from_millis(128))
    }
}

impl Wait {
    pub(crate) fn wait_mode(self) -> WaitMode {
        match self {
            Self::Notify => WaitMode::Subscribe,
            Self::Poll(Backoff { first, longest }) => WaitMode::Poll {
                first: first.max(Duration::from_millis(1)),
                longest: longest.max(first).max(Duration::from_millis(1)),
            },
        }
    }
}

/// Rejects a lease outside the supported range.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    let reason = if lease < SHORTEST_LEASE {
        format!("{lease:?} is shorter than {SHORTEST_LEASE:?}, the shortest supported lease")
    } else if lease > LONGEST_LEASE {
        format!("{lease:?} is longer than 100 years, the longest supported lease")
    } else {
        return Ok(());
    };
    Err(Error::invalid_option("lease", reason))
}

/// Rejects a failover delay that is shorter than the default lease.
pub(crate) fn check_delay(delay: Duration, lease: Duration) -> Result<(), Error> {
    check_lease(delay).map_err(|_| {
        Error::invalid_option(
            "failover_delay",
            "must be between the shortest and the longest supported lease",
        )
    })?;
    if lease > delay {
        let reason = format!("{delay:?} is shorter than the default lease, {lease:?}");
        return Err(Error::invalid_option("failover_delay", reason));
    }
    Ok(())
}

/// Rejects a number of permits that no guard can have.
pub(crate) fn check_permits(count: u32) -> Result<(), Error> {
    if (1..=MAX_PERMITS).contains(&count) {
        return Ok(());
    }
    let reason = format!("a guard can have 1 to {MAX_PERMITS} permits");
    Err(Error::invalid_option("permits", reason))
}

/// Rejects a zero duration.
pub(crate) fn check_positive(option: &'static str, time: Duration) -> Result<(), Error> {
    if time.is_zero() {
        return Err(Error::invalid_option(option, "must be longer than zero"));
    }
    Ok(())
}
