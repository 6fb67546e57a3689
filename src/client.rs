//! The connection to a store that everything begins with.

use std::sync::Arc;
use std::time::Duration;

use crate::admin::Admin;
use crate::builder::ClientBuilder;
use crate::counting_semaphore::CountingSemaphore;
use crate::driver::Core;
use crate::error::Error;
use crate::latch::Latch;
use crate::lock::{Fair, Fenced, Lock, Simple};
use crate::options::Lease;
use crate::owner::Owner;
use crate::protocol::Kind;
use crate::rw_lock::RwLock;
use crate::semaphore::Semaphore;

/// How long [`Client::close`] waits for the store.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// A store, and this process's part in it. Cheap to clone; make one and share it.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let guard = client.lock("invoice:42").acquire().await?;
/// // … nobody else sends invoice 42 now …
/// guard.release().await?;
/// client.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    core: Arc<Core>,
    lease: Lease,
}

impl Client {
    pub(crate) const fn new(core: Arc<Core>, lease: Lease) -> Self {
        Self { core, lease }
    }

    /// Connects to a store:
    ///
    /// - `redis://[user:password@]host[:port][/database]`: a Redis or Valkey server;
    /// - `rediss://…[?ca=FILE][&cert=FILE&key=FILE]`: the same, encrypted, with the feature `tls`. The files are in PEM form: whom
    ///   to trust in place of those whom the system trusts, and our own certificate and key for servers that ask;
    /// - `redis+unix:///path/to/socket[?db=0&user=…&pass=…]`: the same through a unix socket;
    /// - `redis-sentinel://[user:password@]host[:port],host[:port],…/master[/database][?sentinel_user=…&sentinel_pass=…]`:
    ///   the master of that name, wherever its sentinels say it is;
    /// - `redis-cluster://[user:password@]host[:port],host[:port],…[?pubsub=both]`: a cluster, each lock where its slot is;
    /// - `sqlite:path/to/file`: a file that all processes of this machine share, without any server; `sqlite:`
    ///   alone is this user's own (`~/.local/state/distlock/locks.db`), refused if the home folder is another user's. Linux only;
    /// - `memory:`: this client's own memory, for tests. Two clients that are to exclude each other need a
    ///   name: `memory:NAME` is shared within the process.
    ///
    /// Special characters in a password must be percent-encoded. `docs/connecting.md` has a line to copy for each way to a
    /// server, and what to do when a certificate is refused.
    ///
    /// # Errors
    ///
    /// If the address makes no sense, or the store cannot be reached, cannot be trusted ([`Error::Tls`]) or refuses us.
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes what was opened.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::connect("memory:").await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// The same with options.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// use distlock::{Client, Lease};
    ///
    /// let client = Client::builder("memory:")
    ///     .default_lease(Lease::KeepAlive(Duration::from_secs(10)))
    ///     .label("billing-7")
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    /// The lock of this name: plain, reentrant by owner, Redisson's `RLock`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// # guard.release().await }
    /// ```
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock::new(self.core.clone(), name.into(), Kind::Mutex, self.lease)
    }

    /// The fair lock of this name: first come, first served, across processes and languages. Redisson's `RFairLock`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.fair_lock("printer").acquire().await?;
    /// # guard.release().await }
    /// ```
    pub fn fair_lock(&self, name: impl Into<Arc<str>>) -> Lock<Fair> {
        Lock::new(self.core.clone(), name.into(), Kind::Fair, self.lease)
    }

    /// The fenced lock of this name: each grant has a [token](crate::Held::token) that grows, so that what you write to can
    /// refuse a holder that comes too late. Redisson's `RFencedLock`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.fenced_lock("stock").acquire().await?;
    /// println!("UPDATE … WHERE token <= {}", guard.token());
    /// # guard.release().await }
    /// ```
    pub fn fenced_lock(&self, name: impl Into<Arc<str>>) -> Lock<Fenced> {
        Lock::new(self.core.clone(), name.into(), Kind::Fenced, self.lease)
    }

    /// The read/write lock of this name: many readers, or one writer. Redisson's `RReadWriteLock`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.rw_lock("prices").read().acquire().await?;
    /// # guard.release().await }
    /// ```
    pub fn rw_lock(&self, name: impl Into<Arc<str>>) -> RwLock {
        RwLock::new(self.core.clone(), name.into(), self.lease)
    }

    /// The semaphore of this name: so many may hold it at once, each with a lease of its own. Redisson's
    /// `RPermitExpirableSemaphore`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.semaphore("exports").set_total(3).await?;
    /// let permit = client.semaphore("exports").permit().acquire().await?;
    /// # permit.release().await }
    /// ```
    pub fn semaphore(&self, name: impl Into<Arc<str>>) -> Semaphore {
        Semaphore::new(self.core.clone(), name.into(), self.lease)
    }

    /// The semaphore of this name that only counts: permits are nobody's, and have no lease. Redisson's `RSemaphore`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.try_set(3).await?;
    /// slots.acquire(2).await?;
    /// slots.release(2).await?;
    /// # Ok(()) }
    /// ```
    pub fn counting_semaphore(&self, name: impl Into<Arc<str>>) -> CountingSemaphore {
        CountingSemaphore::new(self.core.clone(), name.into())
    }

    /// The latch of this name: it opens when it has been counted down to zero. Redisson's `RCountDownLatch`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.latch("shards loaded").try_set(12).await?;
    /// # Ok(()) }
    /// ```
    pub fn latch(&self, name: impl Into<Arc<str>>) -> Latch {
        Latch::new(self.core.clone(), name.into())
    }

    /// The simple lock of this name: one value with a time to live, the format of redsync, redis-py, node-redlock
    /// and rslock; the first three have been tried, and share it with us.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.simple_lock("report").acquire().await?;
    /// # guard.release().await }
    /// ```
    pub fn simple_lock(&self, name: impl Into<Arc<str>>) -> Lock<Simple> {
        Lock::new(self.core.clone(), name.into(), Kind::Simple, self.lease)
    }

    /// Somebody who may hold a lock more than once.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let me = client.new_owner();
    /// assert_ne!(me, client.new_owner());
    /// # Ok(()) }
    /// ```
    pub fn new_owner(&self) -> Owner {
        Owner::new(self.core.id().clone(), self.core.fresh_local_owner())
    }

    /// Calls this client something else from now on; see [`ClientBuilder::label`].
    ///
    /// Others are told in the background, soon after this returns. Does nothing on a closed client.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::builder("memory:").label("billing-7").connect().await?;
    /// let guard = client.lock("import").acquire().await?;
    /// client.set_label("billing-7: importing orders.csv");
    /// # guard.release().await }
    /// ```
    pub fn set_label(&self, label: impl Into<String>) {
        self.core.set_label(label.into().into());
    }

    /// For operators: who holds what.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert!(client.admin().list("*").await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn admin(&self) -> Admin {
        Admin::new(self.core.clone())
    }

    /// Gives back what is held, fails whoever waits, finishes what is under way.
    ///
    /// Guards that are still alive are lost ([`LostReason::Closed`](crate::LostReason::Closed)). A call of another task that is still
    /// under way fails, and what it asked for is undone; one whose future nobody polls any more is waited for up to a second, and is
    /// undone when that future is dropped.
    /// Without this, what was dropped just before the process ends may be left to its lease.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if the store has not heard of everything within five seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the rest to the background.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// client.close().await?;
    /// assert!(!guard.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn close(&self) -> Result<(), Error> {
        if self.core.close(CLOSE_WITHIN).await {
            return Ok(());
        }
        Err(Error::Timeout {
            name: "all locks".into(),
            detail: "not everything could be given back; leases will end the rest".into(),
        })
    }
}
