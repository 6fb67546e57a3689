//! A lock's name and how one wants to hold it.

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

/// A lock by name: a name, not a state. Clone it, share it, make it again.
///
/// Nobody else, in this process or any other, in Rust or in Java, holds the lock of the same name on
/// the same store while a [`Guard`] is valid; see the guarantees for the faults under which that holds.
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
    /// How many it asks for, where there are many.
    permits: PermitRequest,
    kind: PhantomData<fn() -> K>,
}

/// The plain, reentrant lock: one owner at a time. Redisson's `RLock`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Plain;

/// The plain lock with a token for each grant, which tells a late holder from the one after it. Redisson's `RFencedLock`.
///
/// A holder that is stopped for longer than its lease may go on as if it still had the lock, and no lock can prevent that.
/// What it writes to can, if every write brings its [token](crate::Held::token) along. A plain lock of the same name keeps
/// this one out and has no tokens: use one kind for a name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Fenced;

/// The plain lock, first come, first served, across processes and languages. Redisson's `RFairLock`.
///
/// Everybody who waits has a place in the store's line, and keeps it while it is there: through outages, and although
/// others give up or die. It costs more than the plain lock, which passes between tasks of one client in memory.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Fair;

/// The lock of most other libraries: `SET name value NX PX lease`, and a value nobody else knows.
///
/// What it does not have is in the format: nobody but its own client counts how often an owner holds it, and other
/// libraries tell nobody when they give it back. Waiters of ours hear of each other; of the others they learn by asking ten
/// times a second.
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

    /// So many permits of a semaphore.
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

    /// How long the lock stays taken when nobody gives it back. Without this, the client's default.
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

    /// Acquires for this owner, who may hold the lock more than once.
    ///
    /// A guard that is released while the owner has others on the lock does not shorten the lease: if it had the longest, the lock
    /// stays taken in the store for as long as that said, unless the others are released. (Redisson's read lock returns to the longest
    /// lease of the remaining holds.)
    ///
    /// Two acquisitions of one owner that are under way at the same time know nothing of each other until
    /// one of them has the lock: a [`try_acquire`](Lock::try_acquire) may then find it busy.
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

    /// How a waiter learns that it is worth asking again.
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

    /// Gives the lock back after this long, whatever its holder does: the guard is then lost, with
    /// [`LostReason::MaxHold`](crate::LostReason::MaxHold).
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

    /// The lock's name.
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

    /// Waits for the lock, however long it takes.
    ///
    /// Waiters of one client get it in the order they asked. A task that holds the lock already waits for
    /// itself, unless both acquisitions are [`with_owner`](Lock::with_owner).
    ///
    /// # Errors
    ///
    /// - [`Error::Unavailable`] or [`Error::Timeout`] if the store cannot be reached, or does not answer, at
    ///   the first attempt. Once it has said that somebody else holds the lock, the wait goes on through
    ///   outages.
    /// - [`Error::PermissionDenied`], [`Error::OutOfMemory`], [`Error::WrongKind`] or [`Error::Storage`] if
    ///   the store refuses, also in the middle of a wait.
    /// - [`Error::WouldDeadlock`] if it is asked to write by an owner that reads, beside others.
    /// - [`Error::Lost`] if the [owner](Lock::with_owner) held the lock already and the store no longer knows of it: the guards that it
    ///   has are lost, and the next call begins anew. Also if the lease is so short that it ended before the grant arrived.
    /// - [`Error::InvalidName`] or [`Error::InvalidOption`] if the name, a lease or the owner cannot be;
    ///   [`Error::Closed`] if the client is closed.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await, for example by `tokio::time::timeout`: what is under way is undone
    /// in the background, and the next waiter moves up.
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
            // Without a deadline the wait cannot be over.
            guard.ok_or_else(|| Error::of(name, DriverError::TimedOut(None)))
        })
    }

    /// Takes the lock if it is free now.
    ///
    /// # Errors
    ///
    /// If the store cannot say whether it is.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let Some(guard) = client.lock("nightly").try_acquire().await? else {
    ///     return Ok(()); // somebody else is at it
    /// };
    /// # guard.release().await }
    /// ```
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Guard<K>>, Error>> + Send + use<K> {
        self.start(WaitLimit::TryOnce, |guard, _| Ok(guard))
    }

    /// Waits for the lock for at most `wait`, connecting and asking included; `None` if somebody else
    /// still holds it then.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if time is over and the store has not said who holds it; otherwise as
    /// [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
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

    /// Acquires, works, releases. `Ok` means that the work ran under the lock from its beginning to its end.
    ///
    /// The work is dropped at its next await once the lock is lost; see [`Guard::while_held`](crate::Guard::while_held) for what
    /// that cannot stop. When the work has ended, the store is asked once more: a lock that an operator forced open meanwhile, or that the store
    /// has forgotten, is a failure whatever the work returned. A missing reply to the release is not a failure: by
    /// the clock the lock was held, and the release goes on in the background.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`], and [`Error::Lost`] if the lock was lost before the work ended. [`Error::WrongKind`] after the work means
    /// that other data has replaced the lock, or a key beside it, and no renewal had noticed it. If the work ran to its end nevertheless,
    /// [`RunError::into_output`] has what it returned.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work and gives the lock back in the background.
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
            RunError::unless_held(guard.conclude().await, output)
        }
    }

    /// One future, not one in another: each of them would make room for all that is inside.
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

    /// The same as another kind.
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

    /// As one of several, with the lease of them all.
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
            let reason = "permits are nobody's to take again; leave `with_owner` out";
            return Err(Error::invalid_option("owner", reason));
        }
        if let Some(owner) = &self.owner
            && owner.client() != self.core.id()
        {
            let reason = "it was made by another client";
            return Err(Error::invalid_option("owner", reason));
        }
        let terms = LeaseTerms {
            lease: match lease {
                Lease::KeepAlive(_) if !self.core.settings.leases_expire => NO_EXPIRY,
                lease => lease.duration(),
            },
            keep_alive: matches!(lease, Lease::KeepAlive(_)),
            max_hold: self.max_hold,
            peer_ttl_cap: None,
        };
        Ok(AcquireParams {
            subject: self.subject.clone(),
            terms: self.core.terms(self.subject.kind, terms),
            wait_mode: self.wait.wait_mode(),
            local_owner: self.owner.as_ref().map(Owner::local_owner),
            upgrade_from: None,
            permits: self.permits,
        })
    }
}

/// What a call makes of the guard it got, if it got one.
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
