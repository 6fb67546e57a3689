//! The connection to a store that everything begins with.

use std::sync::Arc;
use std::time::Duration;

use crate::admin::Admin;
use crate::connect;
use crate::driver::label::Label;
use crate::driver::{Core, Settings};
use crate::error::Error;
use crate::lock::Lock;
use crate::options::{Lease, check_positive};
use crate::owner::Owner;
use crate::protocol::Kind;

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
    /// Connects to a store:
    ///
    /// - `redis://[user:password@]host[:port][/database]`: a Redis or Valkey server;
    /// - `redis+unix:///path/to/socket[?db=0&user=…&pass=…]`: the same through a unix socket;
    /// - `memory:`: this client's own memory, for tests. Two clients that are to exclude each other need a
    ///   name: `memory:NAME` is shared within the process.
    ///
    /// Special characters in a password must be percent-encoded.
    ///
    /// # Errors
    ///
    /// If the address makes no sense, or the store cannot be reached or refuses us.
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
        ClientBuilder {
            url: url.to_owned(),
            lease: Lease::default(),
            command_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            prefix: String::new(),
            label: None,
            handoff_limit: 32,
            handoff_window: Duration::from_millis(100),
        }
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
        Owner::new(self.core.id().clone(), self.core.fresh_user())
    }

    /// Calls this client something else from now on; see [`ClientBuilder::label`].
    ///
    /// Others are told in the background, soon after this returns. Does nothing on a closed client.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::builder("memory:").label("billing-7").connect().await?;
    /// let guard = client.lock("import").acquire().await?;
    /// client.relabel("billing-7: importing orders.csv");
    /// # guard.release().await }
    /// ```
    pub fn relabel(&self, label: impl Into<String>) {
        self.core.relabel(label.into().into());
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
    /// Guards that are still alive are lost ([`LostReason::Closed`](crate::LostReason::Closed)).
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
    lease: Lease,
    command_timeout: Duration,
    connect_timeout: Duration,
    prefix: String,
    label: Option<String>,
    handoff_limit: u32,
    handoff_window: Duration,
}

impl ClientBuilder {
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

    /// How long making a connection may take. Default: two seconds.
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
        let store = connect::Store {
            url: &self.url,
            prefix: self.prefix.into(),
            connect_timeout: self.connect_timeout,
            command_timeout: self.command_timeout,
        };
        let connected = store.connect().await?;
        let settings = Settings {
            command_timeout: self.command_timeout,
            handoff_limit: self.handoff_limit,
            handoff_window: self.handoff_window,
            label: Arc::new(Label::new(self.label.map(Into::into))),
        };
        Ok(Client {
            core: Core::start(
                connected.engine,
                connected.clock,
                settings,
                connected.background,
            ),
            lease,
        })
    }
}

/// Never the password in the address.
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
