//! Several locks, all or none.

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

/// Several locks that are taken together, all or none: of any kinds, clients and stores. Redisson's `RedissonMultiLock`.
///
/// In whatever order they are given, everybody takes them in the same one, so two that want the same locks do not wait for
/// each other. The same lock twice is taken once, permits of one semaphore are added up. The requests for consecutive locks are sent
/// together, and what was granted is released if one of them is not free: other clients can see a part of the locks taken for a
/// moment.
///
/// **While it waits** it holds those that come before the one it waits for, for at most 1.5 s times the number of locks; then
/// it gives them back, and begins anew a moment later. So those who take the same locks one by one in another order may
/// hold it up for seconds, and never for ever. For a fair lock it does not stand in line but asks now and then, and gets it
/// when nobody else waits.
///
/// All have the same lease: the first one's, unless [`with_lease`](Self::with_lease) says another.
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
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// let member: distlock::Member = client.rw_lock("prices").read().into();
/// assert_eq!(member.name(), "prices");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Member(pub(crate) Lock<Any>);

/// Some kind of lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Any;

impl Member {
    /// The lock's name.
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
    /// These locks together. A lock's own [`with_owner`](Lock::with_owner), [`with_wait`](Lock::with_wait) and
    /// [`with_max_hold`](Lock::with_max_hold) hold here, too. A lock may be held for a while before all are:
    /// `with_max_hold` counts from there.
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

    /// How long all of them stay taken when nobody gives them back.
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

    /// Waits for all of them, however long it takes.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`] for each of them, and [`Error::InvalidOption`] if there are none.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: what is held by then, or under way, is given back in the background.
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
            // Without a deadline the wait cannot be over.
            guard.ok_or_else(|| Error::of(&first.unwrap_or_default(), DriverError::TimedOut(None)))
        }
    }

    /// Takes all of them if they are free now; otherwise none.
    ///
    /// Other clients can see a part of them taken for a moment, until what was granted is released.
    ///
    /// # Errors
    ///
    /// If a store cannot say whether they are.
    ///
    /// # Cancel safety
    ///
    /// As [`MultiLock::acquire`].
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

    /// Waits for all of them for at most `wait`, everything included; `None` if somebody else still holds one of them then.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if time is over and a store has not said who holds one; otherwise as [`MultiLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`MultiLock::acquire`].
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

    /// Acquires, works, releases. `Ok` means that the work ran under all locks from its beginning to its end.
    ///
    /// The work is dropped at its next await once one of the locks is lost; otherwise as [`Lock::run`](crate::Lock::run), for each of
    /// the locks.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::acquire`], and [`Error::Lost`] if one of the locks was lost before the work ended. If the work ran to its end
    /// nevertheless, [`RunError::into_output`] has what it returned.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work and gives the locks back in the background.
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
            RunError::unless_held(guard.conclude().await, output)
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
            return Err(Error::invalid_option("members", "no lock would be held"));
        };
        let lease = self.lease.unwrap_or(first.lease);
        let targets = self.members.iter().map(|Member(lock)| lock.target(lease));
        let targets = in_order(targets.collect::<Result<_, _>>()?);
        for target in &targets {
            // Each of them was asked for few enough; of one semaphore they are added up.
            let params = &target.params;
            check_permits(params.permits.count)
                .map_err(|error| error.about(&params.subject.name))?;
        }
        Ok(targets)
    }
}
