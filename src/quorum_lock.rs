//! One lock on most of several servers: Redlock.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::DriverError;
use crate::driver::acquire::WaitLimit;
use crate::driver::multi::LockTarget;
use crate::driver::quorum::{self, QuorumConfig};
use crate::error::Error;
use crate::multi_lock::Member;
use crate::options::Lease;
use crate::quorum_guard::QuorumGuard;
use crate::quorum_held::QuorumHeld;
use crate::run_error::RunError;

/// One lock that is held on most of several independent servers, so that it survives the loss of the others: Redlock,
/// Redisson's `RedissonRedLock`, the algorithm of redsync and node-redlock.
///
/// All servers get the request at the same time, each with a timeout of a twentieth of the lease. A client that is
/// granted the lock by more than half of them holds it for the rest of the lease. Otherwise the requests are undone on
/// all servers, also on those without a reply. While the lock is held, each server's part is renewed separately; a part
/// that is lost, or whose server was down, is acquired again. The lock is lost when no more than half of the parts are
/// left.
///
/// Use plain locks to share it with Java, simple locks to share it with redsync, node-redlock and similar libraries;
/// the same name on an odd number of servers that are independent, neither replicas of each other nor parts of one
/// cluster.
///
/// **A server that has restarted has no vote for the length of one lease**: it may have forgotten a lock whose holder
/// is still at work. So after a restart of most servers no client acquires the lock for that long. If other clients use
/// longer leases under this name, set [`with_longest_lease`](Self::with_longest_lease).
///
/// **Limits**: a server that loses its data without a restart (`FLUSHALL`, an eviction, a promoted replica), or whose
/// clock jumps, may let two clients in. There are no fencing tokens, because the servers do not know each other's
/// tokens.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, QuorumLock};
///
/// let mut members = Vec::new();
/// for server in ["memory:", "memory:", "memory:"] {              // or redis://a/, redis://b/, redis://c/
///     members.push(Client::builder(server).lazy_connect(true).connect().await?.lock("nightly").into());
/// }
/// let guard = QuorumLock::new(members).acquire().await?;
/// guard.while_held(async { /* the work */ }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct QuorumLock {
    members: Vec<Member>,
    lease: Option<Lease>,
    longest_lease: Option<Duration>,
}

impl QuorumLock {
    /// Returns the same lock on each of these servers. A member's own [`with_owner`](crate::Lock::with_owner) and
    /// [`with_max_hold`](crate::Lock::with_max_hold) apply here, too; [`with_wait`](crate::Lock::with_wait) does not: a
    /// waiter polls all servers.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::{Client, QuorumLock};
    /// let (a, b) = (Client::connect("memory:").await?, Client::connect("memory:").await?);
    /// let lock = QuorumLock::new([a.simple_lock("nightly").into(), b.simple_lock("nightly").into()]);
    /// # lock.acquire().await?.release().await }
    /// ```
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        Self {
            members: members.into_iter().collect(),
            lease: None,
            longest_lease: None,
        }
    }

    /// Sets how long the lock stays held on each server if it is not released. Default: the first member's lease.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::{Lease, QuorumLock};
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = QuorumLock::new([client.lock("a").into()]).with_lease(Lease::Fixed(Duration::from_secs(60)));
    /// # lock.acquire().await?.release().await }
    /// ```
    #[must_use]
    pub const fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the longest lease that any client uses for this lock, other libraries included: a server has no vote for
    /// this long after its restart. Default: the lock's own lease. Zero is right only if every server writes each
    /// change to its disk before it replies (`appendfsync always`), and so loses nothing in a restart.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::QuorumLock;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = QuorumLock::new([client.lock("a").into()]).with_longest_lease(Duration::from_secs(300));
    /// # lock.acquire().await?.release().await }
    /// ```
    #[must_use]
    pub const fn with_longest_lease(mut self, longest: Duration) -> Self {
        self.longest_lease = Some(longest);
        self
    }

    /// Acquires the lock on most servers, waiting as long as it takes. All servers are polled every 50 to 250 ms.
    ///
    /// # Errors
    ///
    /// [`Error::Several`] with the error of each server if so many servers are down, or refuse, that no client could
    /// acquire the lock, and the call has not yet waited for another holder. [`Error::InvalidOption`] if there are no
    /// members, two members have the same address, or they differ in name or kind, or are neither plain nor simple
    /// locks. Otherwise the errors of [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe at every await: parts that are held by then, or requested, are released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::QuorumLock;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = QuorumLock::new([client.lock("a").into()]).acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> impl Future<Output = Result<QuorumGuard, Error>> + Send + use<> {
        let taking = self.start(WaitLimit::Forever);
        let first = self.members.first().map(|member| Arc::from(member.name()));
        async move {
            let guard = taking.await?;
            // Without a deadline the wait cannot time out.
            guard.ok_or_else(|| Error::of(&first.unwrap_or_default(), DriverError::TimedOut(None)))
        }
    }

    /// Acquires the lock if most servers grant it now. Returns `None` if no majority granted it because of other
    /// holders or waiters, even if none of these holds the lock.
    ///
    /// # Errors
    ///
    /// The errors of [`QuorumLock::acquire`]; also if so many servers have restarted recently that no client can
    /// acquire the lock.
    ///
    /// # Cancel safety
    ///
    /// Same as [`QuorumLock::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::{Client, QuorumLock};
    /// # let (a, b, c) = (Client::connect("memory:").await?, Client::connect("memory:").await?, Client::connect("memory:").await?);
    /// let lock = QuorumLock::new([a.lock("x").into(), b.lock("x").into(), c.lock("x").into()]);
    /// let one = a.lock("x").acquire().await?;
    /// let guard = lock.try_acquire().await?.expect("two of three are free");
    /// assert!(lock.try_acquire().await?.is_none());
    /// # drop(one); guard.release().await }
    /// ```
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<QuorumGuard>, Error>> + Send + use<> {
        self.start(WaitLimit::TryOnce)
    }

    /// Acquires the lock, waiting for at most `wait`, everything included; returns `None` if other clients prevent a
    /// majority even then.
    ///
    /// # Errors
    ///
    /// The errors of [`QuorumLock::acquire`], also when the time has passed.
    ///
    /// # Cancel safety
    ///
    /// Same as [`QuorumLock::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::QuorumLock;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = QuorumLock::new([client.lock("a").into()]);
    /// assert!(lock.acquire_timeout(Duration::from_secs(5)).await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn acquire_timeout(
        &self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<QuorumGuard>, Error>> + Send + use<> {
        self.start(WaitLimit::timeout(wait))
    }

    /// Acquires the lock, does the work and releases the lock. `Ok` means that the lock was held from the beginning of
    /// the work to its end.
    ///
    /// If the lock is lost, the work is dropped at its next await. Otherwise `run` behaves as
    /// [`Lock::run`](crate::Lock::run), where a majority of the servers decides.
    ///
    /// # Errors
    ///
    /// The errors of [`QuorumLock::acquire`], and [`Error::Lost`] if the lock was lost before the work ended. If the
    /// work ran to its end nevertheless, [`RunError::into_output`] returns its output.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the lock in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::QuorumLock;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let lock = QuorumLock::new([client.lock("a").into()]);
    /// assert_eq!(lock.run(async |held| held.votes()).await?, 1);
    /// # Ok(()) }
    /// ```
    pub fn run<F, Fut, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, RunError<T>>> + Send + use<F, Fut, T>
    where
        F: FnOnce(QuorumHeld) -> Fut + Send,
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
    ) -> impl Future<Output = Result<Option<QuorumGuard>, Error>> + Send + use<> {
        let targets = self.targets();
        async move {
            let (targets, config) = targets?;
            let taken = quorum::acquire_quorum(targets, config, wait_limit).await;
            match taken {
                Ok(quorum_hold) => Ok(quorum_hold.map(QuorumGuard::new)),
                Err(errors) => Err(Error::all_of(errors)),
            }
        }
    }

    fn targets(&self) -> Result<(Vec<LockTarget>, QuorumConfig), Error> {
        let Some(Member(first)) = self.members.first() else {
            return Err(Error::invalid_option(
                "members",
                "there must be at least one member",
            ));
        };
        let lease = self.lease.unwrap_or(first.lease);
        let targets = self.members.iter().map(|Member(lock)| lock.target(lease));
        let targets: Vec<LockTarget> = targets.collect::<Result<_, _>>()?;
        let first = &targets[0].params.subject;
        for target in &targets {
            let subject = &target.params.subject;
            let reason = if subject != first {
                "all members must have the same name and kind, because they are one lock"
            } else if !subject.kind.supports_quorum() {
                "only plain and simple locks support a quorum"
            } else {
                continue;
            };
            return Err(Error::invalid_option("members", reason).about(&subject.name));
        }
        for (index, target) in targets.iter().enumerate() {
            let server = target.server();
            let mut before = targets[..index].iter();
            if before.any(|other| other.server() == server) {
                let reason =
                    format!("two members are on the same server, which would vote twice: {server}");
                let twice = Error::invalid_option("members", reason);
                return Err(twice.about(&target.params.subject.name));
            }
        }
        let longest_lease = self.longest_lease.unwrap_or(lease.duration());
        Ok((targets, QuorumConfig { longest_lease }))
    }
}
