//! What one can choose about a lock.

use std::time::Duration;

use crate::error::Error;
use crate::protocol::acquire::WaitMode;
use crate::protocol::permit::MAX_PERMITS;

/// Shorter than a round trip may take, and no validity would be left when the grant arrives.
const SHORTEST_LEASE: Duration = Duration::from_millis(10);
/// Longer than any process lives; stores count milliseconds in 64 bits.
const LONGEST_LEASE: Duration = Duration::from_secs(100 * 366 * 86_400);

/// How long a lock stays taken when nobody gives it back.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
/// use distlock::{Client, Lease};
///
/// let client = Client::connect("memory:").await?;
/// // Renewed while the guard lives; free 10 s after the process dies.
/// let lock = client.lock("report").with_lease(Lease::KeepAlive(Duration::from_secs(10)));
/// // Over after an hour, whatever happens.
/// let once = client.lock("nightly").with_lease(Lease::Fixed(Duration::from_secs(3600)));
/// # let _ = (lock.acquire().await?, once.acquire().await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Lease {
    /// Ends this long after it was granted, unless [`Guard::extend`](crate::Guard::extend)ed.
    Fixed(Duration),
    /// Renewed for as long as the guard lives; ends this long after its process dies.
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

/// Redisson's watchdog time-out: thirty seconds, renewed.
impl Default for Lease {
    fn default() -> Self {
        Self::KeepAlive(Duration::from_secs(30))
    }
}

/// When a grant counts, on a server that has replicas.
///
/// A server that dies may have granted a lock and not have told its replicas; the one that is promoted in its place then
/// grants it again. What these have acknowledged survives that. How many to ask for, and what else it takes to be safe, is told in
/// `docs/guarantees.md`.
///
/// ```no_run
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
/// use distlock::{Client, Durability};
///
/// // A server with two replicas: either of them may be promoted.
/// let replicas = Durability::Replicas { acks: 2, timeout: Duration::from_millis(500) };
/// let client = Client::builder("redis://127.0.0.1/").durability(replicas).connect().await?;
/// # drop(client); Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Durability {
    /// When the server has answered.
    #[default]
    Server,
    /// When so many of its replicas have it, too: each grant and each renewal. Where fewer acknowledge it in time, a grant is
    /// taken back ([`Error::NotReplicated`](crate::Error::NotReplicated)), and after a renewal the guard is valid for no
    /// longer than before.
    Replicas {
        /// How many. Where all must have it that could be promoted: all of them.
        acks: u32,
        /// How long they have for it; shorter than the client's
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
            "no replica is asked for; that is Durability::Server"
        } else if timeout < Duration::from_millis(1) {
            "replicas need some time: a millisecond, at least"
        } else if timeout >= command_timeout {
            "its timeout must be shorter than command_timeout, after which no answer is waited for"
        } else {
            return Ok(self);
        };
        Err(Error::invalid_option("durability", reason))
    }
}

/// How a waiter learns that it is worth asking again.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Backoff, Client, Wait};
///
/// let client = Client::connect("memory:").await?;
/// // Without any subscription: Redisson's spin lock.
/// let guard = client.lock("busy").with_wait(Wait::Poll(Backoff::default())).acquire().await?;
/// # guard.release().await }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Wait {
    /// By the store's message, and by asking now and then in case one is lost: every two seconds, in a fair lock's line
    /// every three, for a simple lock ten times a second, since other libraries tell nobody.
    #[default]
    Notify,
    /// By asking, with growing pauses.
    ///
    /// Nobody hears of a poller, so nobody makes room for it: where the tasks of another client queue for
    /// the same lock, it has to ask often to find it free. But in a fair lock's line it has its place, and readers stand
    /// behind a writer that polls; these never pause for longer than those who listen.
    Poll(Backoff),
}

/// Pauses that double from the first to the longest, each shortened at random by up to a half.
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
    /// Pauses from `first` to `longest`.
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

/// Refuses leases that could not work.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    let reason = if lease < SHORTEST_LEASE {
        format!("{lease:?} is shorter than {SHORTEST_LEASE:?}, the shortest that can be kept")
    } else if lease > LONGEST_LEASE {
        format!("{lease:?} is longer than 100 years")
    } else {
        return Ok(());
    };
    Err(Error::invalid_option("lease", reason))
}

/// Refuses a delay after which a lease may still last.
pub(crate) fn check_delay(delay: Duration, lease: Duration) -> Result<(), Error> {
    check_lease(delay).map_err(|_| {
        Error::invalid_option(
            "failover_delay",
            "no lease can be as long or as short as this",
        )
    })?;
    if lease > delay {
        let reason = format!("{delay:?} is shorter than the default lease, {lease:?}");
        return Err(Error::invalid_option("failover_delay", reason));
    }
    Ok(())
}

/// Refuses a number of permits that no guard can have.
pub(crate) fn check_permits(count: u32) -> Result<(), Error> {
    if (1..=MAX_PERMITS).contains(&count) {
        return Ok(());
    }
    let reason = format!("a guard has one to {MAX_PERMITS} permits");
    Err(Error::invalid_option("permits", reason))
}

/// Refuses a zero where some time is needed.
pub(crate) fn check_positive(option: &'static str, time: Duration) -> Result<(), Error> {
    if time.is_zero() {
        return Err(Error::invalid_option(option, "must be longer than zero"));
    }
    Ok(())
}
