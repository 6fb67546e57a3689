//! The builder of a client, with its options.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::client::Client;
use crate::connect;
use crate::driver::label::Label;
use crate::driver::{ClientSettings, Core};
use crate::error::Error;
use crate::options::{Durability, Lease, check_delay, check_lease, check_positive};
use crate::protocol::release_on::ReleaseOn;

#[cfg(feature = "tls")]
mod tls;

/// The options of a [`Client`], and the way to connect it.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
///
/// let client = distlock::Client::builder("memory:")
///     .command_timeout(Duration::from_millis(500))
///     .key_prefix("billing:")
///     .connect()
///     .await?;
/// # drop(client); Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `connect` is called"]
pub struct ClientBuilder {
    url: String,
    tls: connect::BuilderTls,
    lease: Lease,
    command_timeout: Duration,
    redisson_watchdog_timeout: Duration,
    connect_timeout: Duration,
    lazy_connect: bool,
    durability: Durability,
    failover_delay: Option<Duration>,
    prefix: String,
    label: Option<String>,
    handoff_limit: u32,
    handoff_window: Duration,
    release_on: ReleaseOn,
    #[cfg(feature = "simulation")]
    machine: Option<Arc<dyn crate::simulation::Host>>,
}

impl ClientBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            tls: connect::BuilderTls::default(),
            lease: Lease::default(),
            command_timeout: Duration::from_secs(2),
            redisson_watchdog_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(2),
            lazy_connect: false,
            durability: Durability::default(),
            failover_delay: None,
            prefix: String::new(),
            label: None,
            handoff_limit: 32,
            handoff_window: Duration::from_millis(100),
            release_on: ReleaseOn::default(),
            #[cfg(feature = "simulation")]
            machine: None,
        }
    }

    /// Sets the lease of locks without a lease of their own. Default: kept alive, thirty seconds.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::Lease;
    /// let client = distlock::Client::builder("memory:")
    ///     .default_lease(Lease::KeepAlive(Duration::from_secs(10)))
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub const fn default_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the timeout of one request. Default: two seconds.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::Lease;
    /// let client = distlock::Client::builder("memory:")
    ///     .command_timeout(Duration::from_millis(500))
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub const fn command_timeout(mut self, limit: Duration) -> Self {
        self.command_timeout = limit;
        self
    }

    /// Sets the timeout for connecting; with sentinels it includes asking them for the master's address. Default: two
    /// seconds.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::Lease;
    /// let client = distlock::Client::builder("memory:")
    ///     .connect_timeout(Duration::from_secs(5))
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Makes connecting succeed even if the server is unreachable; calls fail until it can be reached. For the servers
    /// of a [`QuorumLock`](crate::QuorumLock), some of which may be down when a program starts. Default: no.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "redis")]
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::builder("redis://127.0.0.1:1/").lazy_connect(true).connect().await?;
    /// assert!(client.lock("stock").try_acquire().await.is_err());
    /// # Ok(()) }
    /// # #[cfg(not(feature = "redis"))] fn main() {}
    /// ```
    pub const fn lazy_connect(mut self, lazy_connect: bool) -> Self {
        self.lazy_connect = lazy_connect;
        self
    }

    /// Sets the durability of a grant on a server with replicas. Default: [`Durability::Server`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration; use distlock::{Client, Durability};
    /// let replicas = Durability::Replicas { acks: 1, timeout: Duration::from_millis(500) };
    /// let builder = Client::builder("redis://127.0.0.1/").durability(replicas);
    /// # drop(builder);
    /// ```
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets for how long after a start or a promotion of a server no new lock is granted: until every lease that its
    /// predecessor may have granted has expired. Default: no delay.
    ///
    /// Set it to the longest lease that any client uses, and to the same value for all of them: a client refuses a
    /// longer lease. Locks that are held stay held, and are renewed and released during the delay. Any other lock could
    /// still belong to another client, so `try_acquire` returns `None` and waiters go on waiting. `docs/guarantees.md`
    /// says what this makes safe together with [`durability`](Self::durability), and what it does not. Redisson's
    /// clients do not observe the delay.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// let builder = distlock::Client::builder("redis://127.0.0.1/").failover_delay(Duration::from_secs(30));
    /// # drop(builder);
    /// ```
    pub const fn failover_delay(mut self, longest_lease: Duration) -> Self {
        self.failover_delay = Some(longest_lease);
        self
    }

    /// Sets Redisson's `lockWatchdogTimeout`, if Java clients share read/write locks with this one. Default: thirty
    /// seconds, as in Redisson.
    ///
    /// When a Redisson reader renews, it sets the remaining time of the whole lock to this value, even if other readers
    /// were granted more. Readers of this client therefore rely on their leases for no longer than this, and renew
    /// three times as often. The value must be no longer than the shortest timeout of any Java client; otherwise locks
    /// can be lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder("memory:")
    ///     .redisson_watchdog_timeout(Duration::from_secs(10))
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub const fn redisson_watchdog_timeout(mut self, timeout: Duration) -> Self {
        self.redisson_watchdog_timeout = timeout;
        self
    }

    /// Sets the prefix of every lock's name in the store, as Redisson's `NameMapper` can. Default: none.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::Lease;
    /// let client = distlock::Client::builder("memory:")
    ///     .key_prefix("billing:")
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the label of this client: it is shown as [`Holder::label`](crate::Holder::label) to clients with the same
    /// key prefix. Default: none. The label is removed when the client is closed, but stays for a lock that was left to
    /// its lease ([`Guard::forget`](crate::Guard::forget)).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::Lease;
    /// let client = distlock::Client::builder("memory:")
    ///     .label("billing-7")
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets how often in a row a lock may be handed off from one waiter of this client to the next without a request to
    /// the store; 0 disables handoffs. Default: 32.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::Lease;
    /// let client = distlock::Client::builder("memory:")
    ///     .handoff_limit(0)
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub const fn handoff_limit(mut self, limit: u32) -> Self {
        self.handoff_limit = limit;
        self
    }

    /// Sets for how long after a grant by the store handoffs may go on. Default: 100 milliseconds.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration; use distlock::Lease;
    /// let client = distlock::Client::builder("memory:")
    ///     .handoff_window(Duration::from_millis(20))
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub const fn handoff_window(mut self, window: Duration) -> Self {
        self.handoff_window = window;
        self
    }

    /// Sets the event besides lease expiry that ends this client's holds, in stores that can detect it (`sqlite:`).
    /// Default: the end of this process.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::ReleaseOn;
    /// // A lock stays held until the child processes have ended, even if this process crashes.
    /// let client = distlock::Client::builder("memory:")
    ///     .release_on(ReleaseOn::Children)
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub const fn release_on(mut self, release_on: ReleaseOn) -> Self {
        self.release_on = release_on;
        self
    }

    /// Connects to the store.
    ///
    /// # Errors
    ///
    /// The errors of [`Client::connect`], and [`Error::InvalidOption`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes everything that it opened.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::builder("memory:").connect().await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub async fn connect(self) -> Result<Client, Error> {
        let lease = self.lease.check()?;
        check_positive("command_timeout", self.command_timeout)?;
        check_positive("connect_timeout", self.connect_timeout)?;
        check_lease(self.redisson_watchdog_timeout).map_err(|_| {
            Error::invalid_option(
                "redisson_watchdog_timeout",
                "must be between the shortest and the longest supported lease",
            )
        })?;
        let durability = self.durability.check(self.command_timeout)?;
        if let Some(delay) = self.failover_delay {
            check_delay(delay, lease.duration())?;
        }
        let store = connect::StoreConfig {
            url: &self.url,
            tls: &self.tls,
            prefix: self.prefix.into(),
            connect_timeout: self.connect_timeout,
            lazy_connect: self.lazy_connect,
            command_timeout: self.command_timeout,
            durability,
            failover_delay: self.failover_delay,
            client: Uuid::new_v4(),
            release_on: self.release_on,
            #[cfg(feature = "simulation")]
            machine: self.machine,
        };
        let connected = store.connect().await?;
        let settings = ClientSettings {
            command_timeout: self.command_timeout,
            handoff_limit: self.handoff_limit,
            handoff_window: self.handoff_window,
            label: Arc::new(Label::new(self.label.map(Into::into))),
            longest_lease: self.failover_delay,
            leases_expire: connected.leases_expire,
            redisson_watchdog_timeout: connected
                .is_shared_with_redisson
                .then_some(self.redisson_watchdog_timeout),
        };
        let core = Core::start(
            store.client,
            connected.engine,
            connected.clock,
            settings,
            connected.background,
        );
        Ok(Client::new(core, lease))
    }
}

/// Options for this project's own tests.
#[cfg(feature = "simulation")]
impl ClientBuilder {
    /// Sets the simulated machine that the client runs on, with its network and its clock.
    #[doc(hidden)]
    pub fn simulated(mut self, machine: Arc<dyn crate::simulation::Host>) -> Self {
        self.machine = Some(machine);
        self
    }
}

/// Prints neither the password in the url nor a key.
impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("url", &connect::masked(&self.url))
            .field("lease", &self.lease)
            .field("prefix", &self.prefix)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
