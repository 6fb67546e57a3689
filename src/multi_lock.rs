//! Several locks that are acquired together, all or none.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::DriverError;
use crate::driver::acquire::WaitLimit;
use crate::driver::multi::order::in_order;
use crate::driver::multi::{self, LockTarget};
use crate::error::Error;
use crate::lock::Lock;
use crate::multi_guard::{MultiGuard, MultiHeld};
use crate::options::{Lease, check_permits};
use crate::run_error::RunError;

/// Several locks that are acquired together, all or none: of any kinds, clients and stores. Redisson's
/// `RedissonMultiLock`.
///
/// All callers acquire the locks in one global order, whatever order they are given in, so two callers that want the
/// same locks do not deadlock. A lock that is given twice is acquired once; permits of one semaphore are added up. The
/// requests for consecutive locks are sent together, and granted locks are released if one of them is not free: other
/// clients can see a part of the locks held for a moment.
///
/// **While it waits**, the caller holds the locks that come before the one it waits for, for at most 1.5 s times the
/// number of locks; then it releases them, and starts again a moment later. So clients that acquire the same locks one
/// by one in another order may delay it for seconds, but never forever. For a fair lock it has no entry in the queue
/// but polls, and acquires the lock when no other client waits.
///
/// All locks have the same lease: the first one's, unless [`with_lease`](Self::with_lease) sets another.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, MultiLock};
///
/// let client = Client::connect("memory:").await?;
/// let (from, to) = (client.lock("account:1"), client.lock("account:2"));
/// let guard = MultiLock::new([from.into(), to.into()]).acquire().await?;
/// guard.while_held(async { /* move money */ }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    members: Vec<Member>,
    lease: Option<Lease>,
}

/// One of the locks in a [`MultiLock`] or a [`QuorumLock`](crate::QuorumLock): made of any [`Lock`].
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// let member: distlock::Member = client.rw_lock("prices").read().into();
/// assert_eq!(member.name(), "prices");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Member(pub(crate) Lock<Any>);

/// The kind parameter of a lock of any kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Any;

impl Member {
    /// Returns the lock's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(distlock::Member::from(client.lock("stock")).name(), "stock");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.0.name()
    }
}

impl<K> From<Lock<K>> for Member {
    fn from(lock: Lock<K>) -> Self {
        Self(lock.as_kind())
    }
}

impl MultiLock {
    /// Returns these locks as one. A lock's own [`with_owner`](Lock::with_owner), [`with_wait`](Lock::with_wait) and
    /// [`with_max_hold`](Lock::with_max_hold) apply here, too. A lock may be held for a while before all are:
    /// `with_max_hold` counts from its grant.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::MultiLock;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = MultiLock::new([
    ///     client.fenced_lock("ledger").into(),
    ///     client.rw_lock("prices").read().into(),
    ///     client.semaphore("exports").with_permits(3).permit().into(),
    /// ]);
    /// # lock.acquire().await?.release().await }
    /// ```
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        Self {
            members: members.into_iter().collect(),
            lease: None,
        }
    }

    /// Sets how long all of them stay held if they are not released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::{Lease, MultiLock};
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = MultiLock::new([client.lock("a").into(), client.lock("b").into()])
    ///     .with_lease(Lease::Fixed(Duration::from_secs(60)));
    /// # lock.acquire().await?.release().await }
    /// ```
    #[must_use]
    pub const fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Acquires all of them, waiting as long as it takes.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`] for each of them, and [`Error::InvalidOption`] if there are none.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe at every await: locks that are held by then, or requested, are released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::MultiLock;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = MultiLock::new([client.lock("a").into(), client.lock("b").into()]).acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> impl Future<Output = Result<MultiGuard, Error>> + Send + use<> {
        let taking = self.start(WaitLimit::Forever);
        let first = self.members.first().map(|member| Arc::from(member.name()));
        async move {
            let guard = taking.await?;
            // Without a deadline the wait cannot time out.
            guard.ok_or_else(|| Error::of(&first.unwrap_or_default(), DriverError::TimedOut(None)))
        }
    }

    /// Acquires all of them if they are free now; otherwise returns `None` and holds none.
    ///
    /// Other clients can see a part of them held for a moment, until the granted ones are released.
    ///
    /// # Errors
    ///
    /// The errors of [`MultiLock::acquire`]: a store could not say whether a lock is free.
    ///
    /// # Cancel safety
    ///
    /// Same as [`MultiLock::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::MultiLock;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let busy = client.lock("b").acquire().await?;
    /// let both = MultiLock::new([client.lock("a").into(), client.lock("b").into()]);
    /// assert!(both.try_acquire().await?.is_none());
    /// assert!(client.lock("a").try_acquire().await?.is_some());
    /// # busy.release().await }
    /// ```
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<MultiGuard>, Error>> + Send + use<> {
        self.start(WaitLimit::TryOnce)
    }

    /// Acquires all of them, waiting for at most `wait`, everything included; returns `None` if another owner still
    /// holds one of them then.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if the time has passed and a store has not said who holds a lock; otherwise the errors of
    /// [`MultiLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`MultiLock::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::MultiLock;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let both = MultiLock::new([client.lock("a").into(), client.lock("b").into()]);
    /// let guard = both.acquire_timeout(Duration::from_secs(5)).await?;
    /// assert!(guard.is_some());
    /// # Ok(()) }
    /// ```
    pub fn acquire_timeout(
        &self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<MultiGuard>, Error>> + Send + use<> {
        self.start(WaitLimit::timeout(wait))
    }

    /// Acquires the locks, does the work and releases them. `Ok` means that all locks were held from the beginning of
    /// the work to its end.
    ///
    /// If one of the locks is lost, the work is dropped at its next await. Otherwise `run` behaves as
    /// [`Lock::run`](crate::Lock::run), for each of the locks.
    ///
    /// # Errors
    ///
    /// The errors of [`MultiLock::acquire`], and [`Error::Lost`] if one of the locks was lost before the work ended. If
    /// the work ran to its end nevertheless, [`RunError::into_output`] returns its output.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the locks in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::MultiLock;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let both = MultiLock::new([client.lock("a").into(), client.lock("b").into()]);
    /// let sum = both.run(async |held| {
    ///     held.check()?;
    ///     Ok::<_, distlock::Error>(1 + 1)
    /// }).await??;
    /// assert_eq!(sum, 2);
    /// # Ok(()) }
    /// ```
    pub fn run<F, Fut, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, RunError<T>>> + Send + use<F, Fut, T>
    where
        F: FnOnce(MultiHeld) -> Fut + Send,
        Fut: Future<Output = T> + Send,
        T: Send,
    {
        let acquiring = self.acquire();
        async move {
            let guard = acquiring.await?;
            let output = guard.while_held(work(guard.held())).await?;
            RunError::unless_held(guard.release_after_run().await, output)
        }
    }

    fn start(
        &self,
        wait_limit: WaitLimit,
    ) -> impl Future<Output = Result<Option<MultiGuard>, Error>> + Send + use<> {
        let targets = self.targets();
        async move {
            let targets = targets?;
            let hold_refs = multi::acquire_all(&targets, wait_limit).await?;
            Ok(hold_refs.map(MultiGuard::new))
        }
    }

    fn targets(&self) -> Result<Vec<LockTarget>, Error> {
        let Some(Member(first)) = self.members.first() else {
            return Err(Error::invalid_option(
                "members",
                "there must be at least one member",
            ));
        };
        let lease = self.lease.unwrap_or(first.lease);
        let targets = self.members.iter().map(|Member(lock)| lock.target(lease));
        let targets = in_order(targets.collect::<Result<_, _>>()?);
        for target in &targets {
            // Each member is within the limit; of one semaphore the permits are added up.
            let params = &target.params;
            check_permits(params.permits.count)
                .map_err(|error| error.about(&params.subject.name))?;
        }
        Ok(targets)
    }
}
