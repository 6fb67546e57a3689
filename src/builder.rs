//! How a client is made.

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

/// How a [`Client`] is made.
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
#[must_use = "a builder does nothing until it connects"]
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

    /// The lease of locks that choose none. Default: kept alive, thirty seconds.
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

    /// How long one request may take. Default: two seconds.
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

    /// How long making a connection may take; behind sentinels, together with hearing from them where the master is. Default: two
    /// seconds.
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

    /// Whether it is enough that the server may be reached later: connecting succeeds all the same, and calls say what is
    /// wrong until it is there. For the servers of a [`QuorumLock`](crate::QuorumLock), some of which may be down when a
    /// program starts. Default: no.
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

    /// When a grant counts, on a server that has replicas. Default: when the server has answered.
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

    /// How long nothing new is granted after a server has started, or was promoted: until every lease is over that the one
    /// before it may have promised. Default: not at all.
    ///
    /// It is as long as the longest lease that any client uses, and the same for all of them: a client refuses a longer one.
    /// What is held stays held, is renewed and given back meanwhile; any other lock is somebody else's until then, as far as
    /// anybody can know: whoever tries gets none, and whoever waits goes on waiting. What this makes safe,
    /// together with [`durability`](Self::durability), and what it does not, is told in `docs/guarantees.md`. Redisson's
    /// clients know nothing of it.
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

    /// Redisson's `lockWatchdogTimeout`, where Java clients share read/write locks with this one. Default: thirty seconds,
    /// as there.
    ///
    /// A reader of theirs sets what is left of the whole lock to this time when it renews, however long others were
    /// promised it. Readers of ours therefore rely on their leases for no longer than this, and ask anew three times as
    /// often; so that nothing is lost, it must be no longer than the shortest that any Java client uses.
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

    /// Goes before every lock's name in the store, as Redisson's `NameMapper` may do. Default: nothing.
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

    /// What this client calls itself when others, with the same key prefix, look who holds a lock.
    /// Default: nothing. Goes when the client is closed, but stays for a lock that was left to its
    /// lease ([`Guard::forget`](crate::Guard::forget)).
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

    /// How often in a row a lock may be passed from one waiter of this client to the next without
    /// asking the store; 0 for never. Default: 32.
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

    /// For how long after a grant by the store that may go on. Default: 100 milliseconds.
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

    /// With what its holds end beside their leases, where the store can tell: `sqlite:`. Default: with this process.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use distlock::ReleaseOn;
    /// // What a child works on stays locked until it has ended, whatever becomes of us.
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

    /// Connects.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and [`Error::InvalidOption`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes what was opened.
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
                "no lease can be as long or as short as this",
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

/// For this project's own tests.
#[cfg(feature = "simulation")]
impl ClientBuilder {
    /// The machine that the client runs on, with its network and its clock.
    #[doc(hidden)]
    pub fn simulated(mut self, machine: Arc<dyn crate::simulation::Host>) -> Self {
        self.machine = Some(machine);
        self
    }
}

/// Never the password in the address, nor a key.
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
