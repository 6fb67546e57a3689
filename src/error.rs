//! The errors of this crate.

use std::sync::Arc;

use crate::driver::{DriverError, NamedDriverError};
pub use crate::engine::TlsProblem;
use crate::engine::{StoreError, StoreErrorKind};
pub use crate::protocol::lease::{LostReason, Risk};
use crate::protocol::rw::MAX_READ_HOLDS;

mod display;

use self::display::{JoinedErrors, NamePrefix, TruncatedName, why_closed, without_code};

/// The failure of a call. A lock that is held by another owner is no error: calls then return `None`.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, Error};
///
/// let client = Client::connect("memory:").await?;
/// match client.lock("stock").try_acquire().await {
///     Ok(Some(guard)) => guard.release().await?,
///     Ok(None) => println!("somebody else is at it"),
///     Err(Error::PermissionDenied { detail, .. }) => println!("ask the operator: {detail}"),
///     Err(error) if error.is_transient() => println!("later: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client was closed, or this process was forked from the one that made it.
    #[error("`{}`: {}", TruncatedName(.name), why_closed(*.forked))]
    Closed {
        /// The lock's name.
        name: Arc<str>,
        /// Whether this process was forked from the client's; if not, the client was closed.
        forked: bool,
    },
    /// The url needs a feature of this crate that is not compiled in.
    #[error("`{scheme}:` urls need the `{feature}` feature of this crate")]
    FeatureOff {
        /// The url's scheme.
        scheme: String,
        /// The feature to enable.
        feature: &'static str,
    },
    /// The name is not allowed for a lock.
    #[error("{}invalid lock name: {reason}", NamePrefix(Some(.name)))]
    InvalidName {
        /// The name, truncated and escaped for display.
        name: Arc<str>,
        /// The rule that the name violates.
        reason: String,
    },
    /// An option has an invalid value.
    #[error("{}{option}: {reason}", NamePrefix(.name.as_ref()))]
    InvalidOption {
        /// The lock's name; `None` if the option is the client's.
        name: Option<Arc<str>>,
        /// The name of the option.
        option: &'static str,
        /// The reason why the value is invalid.
        reason: String,
    },
    /// The store's url is invalid.
    #[error("`{url}`: {reason}")]
    InvalidUrl {
        /// The url, with its password masked.
        url: String,
        /// The reason why the url is invalid.
        reason: String,
    },
    /// The lock was held, and was lost.
    #[error("`{}` was lost: {reason}{}", TruncatedName(.name), AfterRenewal(.cause))]
    Lost {
        /// The lock's name.
        name: Arc<str>,
        /// The reason of the loss.
        reason: LostReason,
        /// The error of the last renewal, if the lease expired because renewals failed and that is known.
        cause: Option<Arc<str>>,
    },
    /// Fewer replicas than [`Durability`](crate::Durability) demands have acknowledged the grant in time. The grant is
    /// undone in the background.
    #[error("`{}`: {detail}; the grant does not count, because a failover could lose it", TruncatedName(.name))]
    NotReplicated {
        /// The lock's name.
        name: Arc<str>,
        /// The number of acknowledgements.
        detail: String,
    },
    /// The store has no memory left for another lock.
    #[error("`{}`: the store has no space left ({detail}); raise its limit or free some space", TruncatedName(.name))]
    OutOfMemory {
        /// The lock's name.
        name: Arc<str>,
        /// The store's message.
        detail: String,
    },
    /// The store's user lacks a permission.
    #[error("`{}`: the store refuses the request: {detail}", TruncatedName(.name))]
    PermissionDenied {
        /// The lock's name, or the store's url.
        name: Arc<str>,
        /// The store's message; not every server names the key or command.
        detail: String,
    },
    /// The owner requests the write lock while it and others hold the read lock: it would wait for itself.
    #[error("`{}` is held for reading by this owner and by others; release the read lock first, or use `try_upgrade`", TruncatedName(.name))]
    WouldDeadlock {
        /// The lock's name.
        name: Arc<str>,
    },
    /// The guard has released the lock.
    #[error("`{}` was released", TruncatedName(.name))]
    Released {
        /// The lock's name.
        name: Arc<str>,
    },
    /// An operation on several locks, or on one lock on several servers, failed for several of them.
    #[error("{}", JoinedErrors(.errors))]
    Several {
        /// The error of each of them.
        errors: Vec<Self>,
    },
    /// The store cannot be used: it is damaged, belongs to another program, or has an unknown version.
    #[error("`{}`: the store cannot be used: {detail}", TruncatedName(.name))]
    Storage {
        /// The lock's name, or the store's url.
        name: Arc<str>,
        /// The details that are known.
        detail: String,
    },
    /// The time passed before the store said whether the lock is free. The request is undone in the background; but a
    /// change of a [latch](crate::Latch) or of a [counting semaphore](crate::CountingSemaphore) may have been made.
    #[error("`{}`: no reply from the store in time ({detail})", TruncatedName(.name))]
    Timeout {
        /// The lock's name.
        name: Arc<str>,
        /// The operation that timed out.
        detail: String,
    },
    /// No trusted TLS connection is possible: the client's certificate, or the server's, is not valid. Nothing was sent
    /// to a server that had not proved its identity. Waiting does not help, so waiters get this error at once.
    #[error("`{}`: no secure connection: {detail}", TruncatedName(.name))]
    Tls {
        /// The lock's name, or the store's url.
        name: Arc<str>,
        /// The kind of problem.
        problem: TlsProblem,
        /// The problem in words, and what to do about it.
        detail: String,
    },
    /// The store cannot be reached, or is not ready. The request is undone, or completed, in the background; a change
    /// of a [latch](crate::Latch) or of a [counting semaphore](crate::CountingSemaphore) was not made.
    #[error("`{}`: the store is unavailable: {detail}", TruncatedName(.name))]
    Unavailable {
        /// The lock's name, or the store's url.
        name: Arc<str>,
        /// The details of the failure.
        detail: String,
    },
    /// The key holds other data than a lock of this kind: another program's data, or a lock of another kind. The data
    /// is left unchanged.
    #[error("`{}` is not a lock of this kind ({detail}); choose another name or a key prefix", TruncatedName(.name))]
    WrongKind {
        /// The lock's name.
        name: Arc<str>,
        /// The store's message.
        detail: String,
    },
}

impl Error {
    /// Returns whether the same call may succeed a little later.
    ///
    /// A repetition is harmless for locks and leased permits. It is not after a [`Timeout`](Self::Timeout) of a change
    /// of a [latch](crate::Latch) or of a [counting semaphore](crate::CountingSemaphore): that change may have been
    /// made.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio_test();
    /// # #[tokio::main] async fn tokio_test() {
    /// let client = distlock::Client::connect("memory:").await.unwrap();
    /// let error = client.lock("").acquire().await.unwrap_err();
    /// assert!(!error.is_transient(), "an empty name stays one");
    /// # }
    /// ```
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::NotReplicated { .. }
            | Self::OutOfMemory { .. }
            | Self::Timeout { .. }
            | Self::Unavailable { .. } => true,
            Self::Several { errors } => {
                let mut rest = errors.as_slice();
                while let [first, others @ ..] = rest {
                    if !first.is_transient() {
                        return false;
                    }
                    rest = others;
                }
                true
            }
            Self::Closed { .. }
            | Self::FeatureOff { .. }
            | Self::InvalidName { .. }
            | Self::InvalidOption { .. }
            | Self::InvalidUrl { .. }
            | Self::Lost { .. }
            | Self::PermissionDenied { .. }
            | Self::WouldDeadlock { .. }
            | Self::Released { .. }
            | Self::Storage { .. }
            | Self::Tls { .. }
            | Self::WrongKind { .. } => false,
        }
    }

    /// Returns whether the error means that a held lock was lost; for several locks, that one of them was.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::connect("memory:").await?;
    /// let both = distlock::MultiLock::new([client.lock("a").into(), client.lock("b").into()]);
    /// let guard = both.acquire().await?;
    /// client.admin().force_release("a").await?;
    /// client.admin().force_release("b").await?;
    /// assert!(guard.release().await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Lost { .. } => true,
            Self::Several { errors } => errors.iter().any(Self::is_lost),
            _ => false,
        }
    }

    /// Returns whether an error of a release shows that the lock was not held until then: it was lost, other data has
    /// replaced it, or the store is not the one that granted it. For several locks one such error is enough. A missing
    /// reply shows nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// client.admin().force_release("stock").await?;
    /// assert!(guard.release().await.unwrap_err().denies_hold());
    /// # Ok(()) }
    /// ```
    pub fn denies_hold(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::WrongKind { .. } | Self::Storage { .. } => true,
            Self::Closed { forked, .. } => *forked,
            Self::Several { errors } => errors.iter().any(Self::denies_hold),
            _ => false,
        }
    }

    pub(crate) const fn lost(name: Arc<str>, reason: LostReason) -> Self {
        let cause = None;
        Self::Lost {
            name,
            reason,
            cause,
        }
    }

    pub(crate) fn invalid_name(name: &str, reason: impl Into<String>) -> Self {
        Self::InvalidName {
            name: TruncatedName(name).to_string().into(),
            reason: reason.into(),
        }
    }

    pub(crate) fn invalid_option(option: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidOption {
            name: None,
            option,
            reason: reason.into(),
        }
    }

    /// Returns the error for extending a lease that is renewed anyway: the caller has probably confused the two kinds.
    pub(crate) fn kept_alive(lock: &str) -> Self {
        let reason = "the lease is renewed automatically; use Lease::Fixed to extend it yourself";
        Self::invalid_option("extend", reason).about(lock)
    }

    /// Returns the only error, or all errors in one; `None` if there are none.
    pub(crate) fn gathered(mut errors: Vec<Self>) -> Option<Self> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(Self::Several { errors }),
        }
    }

    /// Returns all errors of one operation as one.
    pub(crate) fn all_of(errors: Vec<NamedDriverError>) -> Self {
        let errors = errors.into_iter().map(Self::from).collect();
        Self::gathered(errors).unwrap_or(Self::Several { errors: Vec::new() })
    }

    /// Adds the lock's name to an error about an option.
    pub(crate) fn about(mut self, lock: &str) -> Self {
        if let Self::InvalidOption { name, .. } = &mut self {
            *name = Some(lock.into());
        }
        self
    }

    pub(crate) fn of(name: &Arc<str>, error: DriverError) -> Self {
        let name = name.clone();
        match error {
            DriverError::Closed => Self::Closed {
                name,
                forked: false,
            },
            DriverError::StoreError(failure) => Self::from_failure(&name, failure),
            DriverError::Forked => Self::Closed { name, forked: true },
            DriverError::Lost(reason) => Self::lost(name, reason),
            DriverError::WouldDeadlock => Self::WouldDeadlock { name },
            DriverError::TimedOut(Some(said)) => Self::from_failure(&name, said),
            DriverError::TimedOut(None) => Self::Timeout {
                name,
                detail: "the wait ended before the store replied".into(),
            },
            DriverError::LeaseTooLong(longest) => Self::InvalidOption {
                name: Some(name),
                option: "lease",
                reason: format!(
                    "must not be longer than the client's failover_delay ({longest:?}), after which another client \
                     may acquire the lock"
                ),
            },
            DriverError::TooManyReads => Self::InvalidOption {
                name: Some(name),
                option: "with_owner",
                reason: format!(
                    "one owner can hold the read lock at most {MAX_READ_HOLDS} times at once"
                ),
            },
            DriverError::RecentlyRestarted(wait, server) => Self::Unavailable {
                name,
                detail: format!(
                    "{server}: the server has been up for less than {wait:?}, and has no vote until then"
                ),
            },
        }
    }

    pub(crate) fn from_failure(name: &Arc<str>, failure: StoreError) -> Self {
        let name = name.clone();
        let StoreError { kind, detail } = failure;
        match kind {
            StoreErrorKind::Denied | StoreErrorKind::PartiallyDenied => {
                Self::PermissionDenied { name, detail }
            }
            StoreErrorKind::InvalidName => Self::invalid_name(&name, detail),
            StoreErrorKind::OutOfMemory => Self::OutOfMemory { name, detail },
            StoreErrorKind::TimedOut => Self::Timeout { name, detail },
            StoreErrorKind::Tls(problem) => Self::Tls {
                name,
                problem,
                detail,
            },
            StoreErrorKind::WrongKind => Self::WrongKind {
                name,
                detail: without_code(detail),
            },
            StoreErrorKind::Unexpected | StoreErrorKind::Unusable => Self::Storage { name, detail },
            StoreErrorKind::NotReplicated => Self::NotReplicated { name, detail },
            StoreErrorKind::Interrupted
            | StoreErrorKind::Unreachable
            | StoreErrorKind::NotReady => Self::Unavailable { name, detail },
        }
    }
}

impl From<NamedDriverError> for Error {
    fn from(NamedDriverError { name, error }: NamedDriverError) -> Self {
        Self::of(&name, error)
    }
}

/// The loss of a lock: which one, and why.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::LostReason;
///
/// let client = distlock::Client::connect("memory:").await?;
/// let guard = client.lock("stock").acquire().await?;
/// client.close().await?;
/// let lost = guard.lost().await.expect("the client was closed");
/// assert_eq!((&*lost.name, lost.reason), ("stock", LostReason::Closed));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Lost {
    /// The lock's name.
    pub name: Arc<str>,
    /// The reason of the loss.
    pub reason: LostReason,
    /// The error of the last renewal, if the lease expired because renewals failed.
    pub cause: Option<Arc<str>>,
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        let Lost {
            name,
            reason,
            cause,
        } = lost;
        Self::Lost {
            name,
            reason,
            cause,
        }
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (reason, after) = (self.reason, AfterRenewal(&self.cause));
        write!(
            f,
            "`{}` was lost: {reason}{after}",
            TruncatedName(&self.name)
        )
    }
}

/// The part of a loss message that says why renewals failed.
struct AfterRenewal<'a>(&'a Option<Arc<str>>);

impl std::fmt::Display for AfterRenewal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(cause) => write!(f, "; renewal failed: {cause}"),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Closed => "the client was closed",
            Self::Expired => "its lease expired",
            Self::MaxHold => "its maximum hold time has passed",
            Self::Removed => "the store has no record of it any more (deleted, overwritten, force-released, released by id, or the store lost its data)",
            Self::TakenOver => "another owner holds it now",
        })
    }
}
