//! The client: the connection to a store, from which all locks are made.

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

/// Upper bound for the wait of [`Client::close`] for the store.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// A connection to a store. Cheap to clone: make one per process and share it.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let guard = client.lock("invoice:42").acquire().await?;
/// // … no other client sends invoice 42 now …
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

    /// Connects to a store. The url selects it:
    ///
    /// - `redis://[user:password@]host[:port][/database]`: a Redis or Valkey server;
    /// - `rediss://…[?ca=FILE][&cert=FILE&key=FILE]`: the same over TLS, with the feature `tls`. The files are in PEM
    ///   form: `ca` is the authority to trust instead of those that the system trusts; `cert` and `key` are the
    ///   client's certificate and key, for servers that ask for them;
    /// - `redis+unix:///path/to/socket[?db=0&user=…&pass=…]`: the same through a unix socket;
    /// - `redis-sentinel://[user:password@]host[:port],…/master[/database][?sentinel_user=…&sentinel_pass=…]`:
    ///   the master of that name, at the address that its sentinels report;
    /// - `redis-cluster://[user:password@]host[:port],host[:port],…[?pubsub=both]`: a cluster; each lock is on the
    ///   master of its slot;
    /// - `sqlite:path/to/file`: a file that all processes of this machine share, without any server; `sqlite:` alone is
    ///   the current user's own file (`~/.local/state/distlock/locks.db`) and is refused if the home folder belongs to
    ///   another user. Linux only;
    /// - `memory:`: this client's own memory, for tests. `memory:NAME` is shared by all clients of the process, so that
    ///   they exclude each other.
    ///
    /// Special characters in a password must be percent-encoded. `docs/connecting.md` has a url to copy for each way to
    /// reach a server, and what to do when a certificate is refused.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] if the url is malformed; another error if the store cannot be reached, cannot be trusted
    /// ([`Error::Tls`]) or refuses the client.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes everything that it opened.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::connect("memory:").await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Returns a builder, to connect with options.
    ///
    /// # Examples
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

    /// Returns the plain lock of this name, reentrant by owner. Redisson's `RLock`.
    ///
    /// # Examples
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

    /// Returns the fair lock of this name: first come, first served, across processes and languages. Redisson's
    /// `RFairLock`.
    ///
    /// # Examples
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

    /// Returns the fenced lock of this name. Each grant has an increasing [token](crate::Held::token), with which the
    /// resource that you write to can reject a holder whose lock has expired. Redisson's `RFencedLock`.
    ///
    /// # Examples
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

    /// Returns the read/write lock of this name: many readers, or one writer. Redisson's `RReadWriteLock`.
    ///
    /// # Examples
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

    /// Returns the semaphore of this name: up to N holders at once, each with its own lease. Redisson's
    /// `RPermitExpirableSemaphore`.
    ///
    /// # Examples
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

    /// Returns the counting semaphore of this name: its permits have no owner and no lease. Redisson's `RSemaphore`.
    ///
    /// # Examples
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

    /// Returns the latch of this name, which opens when it has been counted down to zero. Redisson's `RCountDownLatch`.
    ///
    /// # Examples
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

    /// Returns the simple lock of this name: one value with a time to live, the format of redsync, redis-py,
    /// node-redlock and rslock. Sharing a lock with the first three has been tested.
    ///
    /// # Examples
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

    /// Returns a new [`Owner`], which can hold a lock more than once.
    ///
    /// # Examples
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

    /// Changes this client's label; see [`ClientBuilder::label`].
    ///
    /// The store is updated in the background, soon after this returns. Does nothing on a closed client.
    ///
    /// # Examples
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

    /// Returns the operator's view of the store: all locks and their holders.
    ///
    /// # Examples
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

    /// Closes the client: releases its holds, fails its waiters and finishes requests in flight.
    ///
    /// Guards that are still alive are lost ([`LostReason::Closed`](crate::LostReason::Closed)). A pending call of
    /// another task fails, and its request is undone. A call whose future is no longer polled is waited for up to a
    /// second, and is undone when that future is dropped. Without `close`, a guard that was dropped just before the
    /// process ends may stay held until its lease expires.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if the store has not confirmed everything within five seconds.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the rest is done in the background.
    ///
    /// # Examples
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
            detail: "not all locks were released; the others end with their leases".into(),
        })
    }
}
