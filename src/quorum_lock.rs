//! One lock on most of several servers.

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

/// One lock that is held on most of several independent servers, so that it outlives the loss of the others: Redlock,
/// Redisson's `RedissonRedLock`, what redsync and node-redlock do.
///
/// All servers are asked at the same time, each for at most a twentieth of the lease, and whoever is granted it by more than
/// half has it, for what is left of the lease then. Otherwise it is undone everywhere, also where no answer came. While it is
/// held each server's part is renewed by itself; where one is lost, or its server was down, it is asked for again. It is
/// lost when no more than half are left.
///
/// Take plain locks beside Java, simple ones beside redsync, node-redlock and the like; the same name on an odd number of
/// servers that share nothing, neither replicas of each other nor parts of one cluster.
///
/// **A server that restarted has no vote for one lease**: it may have forgotten somebody who is still at work. So after most of
/// them were restarted nobody gets the lock for that long. If others use longer leases under this name, say so
/// ([`with_longest_lease`](Self::with_longest_lease)).
///
/// **What it cannot do**: a server that forgets without restarting (`FLUSHALL`, an eviction, a replica that is promoted) or
/// whose clock jumps may let two in; and it has no fencing tokens, because servers do not know each other's.
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
    /// The same lock on each of these servers. A member's own [`with_owner`](crate::Lock::with_owner) and
    /// [`with_max_hold`](crate::Lock::with_max_hold) hold here, too; [`with_wait`](crate::Lock::with_wait) does not: whoever waits
    /// asks all servers again and again.
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

    /// How long it stays taken on each server when nobody gives it back; the first member's lease if this is not called.
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

    /// The longest lease that anybody takes this lock with, other libraries included: for so long after its restart a server
    /// has no vote. As long as its own lease if this is not called. Zero is right only if every server writes each change to
    /// its disk before it answers (`appendfsync always`), and so forgets nothing.
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

    /// Waits until most servers have granted it, however long it takes. Asks all of them again every 50 to 250 ms.
    ///
    /// # Errors
    ///
    /// If so many servers are down, or refuse, that nobody could have it, and it has not waited for somebody yet:
    /// [`Error::Several`] has what is wrong with each. [`Error::InvalidOption`] if there are no members, two are on one
    /// address, they differ in name or kind, or are neither plain nor simple locks. Otherwise as [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: what is held by then, or under way, is given back in the background.
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
            // Without a deadline the wait cannot be over.
            guard.ok_or_else(|| Error::of(&first.unwrap_or_default(), DriverError::TimedOut(None)))
        }
    }

    /// Takes it if most servers grant it now. `None` if others are in the way, be it that none of them has got it, either.
    ///
    /// # Errors
    ///
    /// As [`QuorumLock::acquire`]; also while so many servers have restarted a short time ago that nobody can have it.
    ///
    /// # Cancel safety
    ///
    /// As [`QuorumLock::acquire`].
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

    /// Waits for at most `wait`, everything included; `None` if others are in the way then.
    ///
    /// # Errors
    ///
    /// As [`QuorumLock::acquire`], also when time is over.
    ///
    /// # Cancel safety
    ///
    /// As [`QuorumLock::acquire`].
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

    /// Acquires, works, releases. `Ok` means that the work ran under the lock from its beginning to its end.
    ///
    /// The work is dropped at its next await once the lock is lost; otherwise as [`Lock::run`](crate::Lock::run), where most of the
    /// servers decide.
    ///
    /// # Errors
    ///
    /// As [`QuorumLock::acquire`], and [`Error::Lost`] if the lock was lost before the work ended. If the work ran to its end
    /// nevertheless, [`RunError::into_output`] has what it returned.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work and gives the lock back in the background.
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
            RunError::unless_held(guard.conclude().await, output)
        }
    }

    fn start(
        &self,
        wait_limit: WaitLimit,
    ) -> impl Future<Output = Result<Option<QuorumGuard>, Error>> + Send + use<> {
        let asked = self.targets();
        async move {
            let (targets, config) = asked?;
            let taken = quorum::acquire_quorum(targets, config, wait_limit).await;
            match taken {
                Ok(quorum_hold) => Ok(quorum_hold.map(QuorumGuard::new)),
                Err(errors) => Err(Error::all_of(errors)),
            }
        }
    }

    fn targets(&self) -> Result<(Vec<LockTarget>, QuorumConfig), Error> {
        let Some(Member(first)) = self.members.first() else {
            return Err(Error::invalid_option("members", "no lock would be held"));
        };
        let lease = self.lease.unwrap_or(first.lease);
        let targets = self.members.iter().map(|Member(lock)| lock.target(lease));
        let targets: Vec<LockTarget> = targets.collect::<Result<_, _>>()?;
        let first = &targets[0].params.subject;
        for target in &targets {
            let subject = &target.params.subject;
            let reason = if subject != first {
                "all have to be of one name and kind: they are one lock"
            } else if !subject.kind.supports_quorum() {
                "only plain and simple locks can be had on most of several servers"
            } else {
                continue;
            };
            return Err(Error::invalid_option("members", reason).about(&subject.name));
        }
        for (index, target) in targets.iter().enumerate() {
            let server = target.server();
            let mut before = targets[..index].iter();
            if before.any(|other| other.server() == server) {
                let reason = format!("two are on one server, which would vote twice: {server}");
                let twice = Error::invalid_option("members", reason);
                return Err(twice.about(&target.params.subject.name));
            }
        }
        let longest_lease = self.longest_lease.unwrap_or(lease.duration());
        Ok((targets, QuorumConfig { longest_lease }))
    }
}
