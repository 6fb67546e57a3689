//! A lock by name, with its options, and the ways to acquire it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::acquire::{self, AcquireParams, WaitLimit};
use crate::driver::multi::LockTarget;
use crate::driver::{Core, DriverError};
use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::options::{Lease, Wait, check_permits, check_positive};
use crate::owner::Owner;
use crate::protocol::lease::{LeaseTerms, NO_EXPIRY};
use crate::protocol::request::validate_name;
use crate::protocol::{Kind, PermitRequest, Subject};
use crate::run_error::RunError;

/// The name of a lock, with options for acquiring it. It holds no state: clone it, share it, make it again.
///
/// While a [`Guard`] is valid, no other task or process, in Rust or in Java, holds the lock of the same name on the
/// same store. `docs/guarantees.md` says under which faults that holds.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let guard = client.lock("invoice:42").acquire().await?;
/// assert!(client.lock("invoice:42").try_acquire().await?.is_none());
/// # guard.release().await }
/// ```
#[derive(Debug)]
pub struct Lock<K = Plain> {
    core: Arc<Core>,
    subject: Subject,
    pub(crate) lease: Lease,
    wait: Wait,
    owner: Option<Owner>,
    max_hold: Option<Duration>,
    /// The permits of a semaphore to request; one for every other kind.
    permits: PermitRequest,
    kind: PhantomData<fn() -> K>,
}

/// The kind of the plain, reentrant lock: one owner at a time. Redisson's `RLock`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Plain;

/// The kind of the fenced lock: a plain lock with an increasing token per grant. Redisson's `RFencedLock`.
///
/// A holder that is stopped for longer than its lease may go on as if it still held the lock, and no lock can prevent
/// that. The resource that it writes to can reject the write, if every write carries its [token](crate::Held::token). A
/// plain lock of the same name excludes this one and has no tokens: use one kind per name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Fenced;

/// The kind of the fair lock: first come, first served, across processes and languages. Redisson's `RFairLock`.
///
/// Every waiter has an entry in the store's queue, and keeps it as long as it waits: through outages, and although
/// other waiters time out or crash. It costs more than the plain lock, which is handed off between tasks of one client
/// in memory.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Fair;

/// The kind of the simple lock, the format of most other libraries: `SET name value NX PX lease`, with a value that
/// only the holder knows.
///
/// Its limits come from the format: only the owner's own client counts how often it holds the lock, and other libraries
/// do not notify when they release it. Clients of this library notify each other; a release by another library is found
/// by polling ten times a second.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Simple;

impl<K> Lock<K> {
    pub(crate) fn new(core: Arc<Core>, name: Arc<str>, kind: Kind, lease: Lease) -> Self {
        Self {
            core,
            subject: Subject { kind, name },
            lease,
            wait: Wait::default(),
            owner: None,
            max_hold: None,
            permits: PermitRequest::ONE,
            kind: PhantomData,
        }
    }

    /// Returns a lock that acquires several permits of a semaphore.
    pub(crate) fn many(
        core: Arc<Core>,
        name: Arc<str>,
        lease: Lease,
        permits: PermitRequest,
    ) -> Self {
        Self {
            permits,
            ..Self::new(core, name, Kind::Semaphore, lease)
        }
    }

    /// Sets how long the lock stays held if it is not released. Default: the client's default lease.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::Lease;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = client.lock("report").with_lease(Lease::Fixed(Duration::from_secs(60)));
    /// # lock.acquire().await?.release().await }
    /// ```
    #[must_use]
    pub const fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Acquires for this owner, which can hold the lock more than once.
    ///
    /// Releasing a guard while the owner has others on the lock does not shorten the lease: if that guard had the
    /// longest one, the lock stays held in the store until that lease expires, unless the other guards are released.
    /// (Redisson's read lock returns to the longest lease of the remaining holds.)
    ///
    /// Two acquisitions of one owner that are in flight at the same time do not know of each other until one of them
    /// has the lock: a [`try_acquire`](Lock::try_acquire) may then find it busy.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let me = client.new_owner();
    /// let _outer = client.lock("stock").with_owner(&me).acquire().await?;
    /// let _inner = client.lock("stock").with_owner(&me).acquire().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Sets how a waiter learns that the lock may be free.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::{Backoff, Wait};
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = client.lock("busy").with_wait(Wait::Poll(Backoff::default()));
    /// # lock.acquire().await?.release().await }
    /// ```
    #[must_use]
    pub const fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the longest time that the lock may be held: then it is released whatever its holder does, and the guard is
    /// lost with [`LostReason::MaxHold`](crate::LostReason::MaxHold).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = client.lock("import").with_max_hold(Duration::from_secs(3600));
    /// # lock.acquire().await?.release().await }
    /// ```
    #[must_use]
    pub const fn with_max_hold(mut self, longest: Duration) -> Self {
        self.max_hold = Some(longest);
        self
    }

    /// Returns the lock's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.lock("stock").name(), "stock");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        &self.subject.name
    }

    /// Acquires the lock, waiting as long as it takes.
    ///
    /// Waiters of one client acquire it in the order of their calls. A task that already holds the lock waits for
    /// itself, unless both acquisitions are [`with_owner`](Lock::with_owner).
    ///
    /// # Errors
    ///
    /// - [`Error::Unavailable`] or [`Error::Timeout`] if the store cannot be reached, or does not reply, at the first
    ///   attempt. Once it has replied that another owner holds the lock, the wait goes on through outages.
    /// - [`Error::PermissionDenied`], [`Error::OutOfMemory`], [`Error::WrongKind`] or [`Error::Storage`] if the store
    ///   refuses the request, also in the middle of a wait.
    /// - [`Error::WouldDeadlock`] if an owner that holds the read lock requests the write lock while others read.
    /// - [`Error::Lost`] if the [owner](Lock::with_owner) already held the lock and the store no longer has that hold:
    ///   the owner's guards are lost, and the next call starts afresh. Also if the lease is so short that it expired
    ///   before the grant arrived.
    /// - [`Error::InvalidName`] or [`Error::InvalidOption`] if the name, a lease or the owner is invalid;
    ///   [`Error::Closed`] if the client is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe at every await, for example in `tokio::time::timeout`: the pending request is undone in the
    /// background, and the next waiter moves up.
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
    pub fn acquire(&self) -> impl Future<Output = Result<Guard<K>, Error>> + Send + use<K> {
        self.start(WaitLimit::Forever, |guard, name| {
            // Without a deadline the wait cannot time out.
            guard.ok_or_else(|| Error::of(name, DriverError::TimedOut(None)))
        })
    }

    /// Acquires the lock if it is free now; returns `None` if another owner holds it.
    ///
    /// # Errors
    ///
    /// Any error of [`Lock::acquire`]: the store could not say whether the lock is free.
    ///
    /// # Cancel safety
    ///
    /// Same as [`Lock::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let Some(guard) = client.lock("nightly").try_acquire().await? else {
    ///     return Ok(()); // another process is at work
    /// };
    /// # guard.release().await }
    /// ```
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Guard<K>>, Error>> + Send + use<K> {
        self.start(WaitLimit::TryOnce, |guard, _| Ok(guard))
    }

    /// Acquires the lock, waiting for at most `wait`, including the time to connect; returns `None` if another owner
    /// still holds it then.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if the time has passed and the store has not said who holds the lock; otherwise the errors of
    /// [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`Lock::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire_timeout(Duration::from_secs(5)).await?;
    /// assert!(guard.is_some());
    /// # Ok(()) }
    /// ```
    pub fn acquire_timeout(
        &self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<Guard<K>>, Error>> + Send + use<K> {
        self.start(WaitLimit::timeout(wait), |guard, _| Ok(guard))
    }

    /// Acquires the lock, does the work and releases the lock. `Ok` means that the lock was held from the beginning of
    /// the work to its end.
    ///
    /// If the lock is lost, the work is dropped at its next await; see [`Guard::while_held`](crate::Guard::while_held)
    /// for what that cannot stop. When the work has ended, the store is asked once more: if an operator has forced the
    /// lock open, or the store has lost it, `run` fails whatever the work returned. A missing reply to the release is
    /// not a failure: by the clock the lock was held, and the release goes on in the background.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`], and [`Error::Lost`] if the lock was lost before the work ended.
    /// [`Error::WrongKind`] after the work means that other data has replaced the lock, or a key that belongs to it,
    /// and no renewal had noticed it. If the work ran to its end nevertheless, [`RunError::into_output`] returns its
    /// output.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the lock in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let sum = client.lock("report").run(async |held| {
    ///     held.check()?;
    ///     Ok::<_, distlock::Error>(1 + 1)
    /// }).await??;
    /// assert_eq!(sum, 2);
    /// # Ok(()) }
    /// ```
    pub fn run<F, Fut, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, RunError<T>>> + Send + use<K, F, Fut, T>
    where
        F: FnOnce(Held<K>) -> Fut + Send,
        Fut: Future<Output = T> + Send,
        T: Send,
        K: 'static,
    {
        let acquiring = self.acquire();
        async move {
            let guard = acquiring.await?;
            let output = guard.while_held(work(guard.held())).await?;
            RunError::unless_held(guard.release_after_run().await, output)
        }
    }

    /// Builds one future for all three ways to acquire: nested futures would each reserve space for everything inside
    /// them.
    fn start<T>(
        &self,
        wait_limit: WaitLimit,
        got: MapGuard<K, T>,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<K, T> {
        let core = self.core.clone();
        let params = self.params().map_err(|error| error.about(self.name()));
        async move {
            let params = match &params {
                Ok(params) => params,
                Err(error) => return Err(error.clone()),
            };
            let hold_ref = acquire::acquire(&core, params, wait_limit)
                .await
                .map_err(|error| Error::of(&params.subject.name, error))?;
            got(hold_ref.map(Guard::new), &params.subject.name)
        }
    }

    /// Returns the same lock with another kind parameter.
    pub(crate) fn as_kind<O>(&self) -> Lock<O> {
        Lock {
            core: self.core.clone(),
            subject: self.subject.clone(),
            lease: self.lease,
            wait: self.wait,
            owner: self.owner.clone(),
            max_hold: self.max_hold,
            permits: self.permits,
            kind: PhantomData,
        }
    }

    /// Returns the lock as a member of several, with the lease that all of them share.
    pub(crate) fn target(&self, lease: Lease) -> Result<LockTarget, Error> {
        let lock = self.clone().with_lease(lease);
        let params = lock.params().map_err(|error| error.about(self.name()))?;
        let core = lock.core;
        Ok(LockTarget { core, params })
    }

    fn params(&self) -> Result<AcquireParams, Error> {
        check_name(&self.subject.name)?;
        let lease = self.lease.check()?;
        let allowed = self.core.check_lease(lease.duration());
        allowed.map_err(|error| Error::of(&self.subject.name, error))?;
        if let Some(longest) = self.max_hold {
            check_positive("max_hold", longest)?;
        }
        check_permits(self.permits.count)?;
        if self.subject.kind.has_permits() && self.owner.is_some() {
            let reason = "permits are not reentrant; omit `with_owner`";
            return Err(Error::invalid_option("owner", reason));
        }
        if let Some(owner) = &self.owner
            && owner.client() != self.core.id()
        {
            let reason = "the owner was created by another client";
            return Err(Error::invalid_option("owner", reason));
        }
        let terms = LeaseTerms {
            lease: match lease {
                Lease::KeepAlive(_) if !self.core.settings.leases_expire => NO_EXPIRY,
                lease => lease.duration(),
            },
            keep_alive: matches!(lease, Lease::KeepAlive(_)),
            max_hold: self.max_hold,
            redisson_ttl_cap: None,
        };
        Ok(AcquireParams {
            subject: self.subject.clone(),
            terms: self.core.terms(self.subject.kind, terms),
            wait_mode: self.wait.wait_mode(),
            local_owner: self.owner.as_ref().map(Owner::local_owner),
            other_side: None,
            permits: self.permits,
        })
    }
}

/// Maps the guard, if one was acquired, to the result of a call.
type MapGuard<K, T> = fn(Option<Guard<K>>, &Arc<str>) -> Result<T, Error>;

impl<K> Clone for Lock<K> {
    fn clone(&self) -> Self {
        self.as_kind()
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let wrong = |reason| Error::invalid_name(name, reason);
    validate_name(name).map(wrong).map_or(Ok(()), Err)
}
