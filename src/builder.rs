//! How a client is made.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::client::Client;
use crate::connect;
use crate::driver::label::Label;
use crate::driver::{Core, Settings};
use crate::error::Error;
use crate::options::{Lease, check_lease, check_positive};
use crate::protocol::holds_end_with::HoldsEndWith;

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
    peer_watchdog: Duration,
    connect_timeout: Duration,
    prefix: String,
    label: Option<String>,
    handoff_limit: u32,
    handoff_window: Duration,
    holds_end_with: HoldsEndWith,
}

impl ClientBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            lease: Lease::default(),
            command_timeout: Duration::from_secs(2),
            peer_watchdog: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(2),
            prefix: String::new(),
            label: None,
            handoff_limit: 32,
            handoff_window: Duration::from_millis(100),
            holds_end_with: HoldsEndWith::default(),
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
    ///     .peer_watchdog(Duration::from_secs(10))
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub const fn peer_watchdog(mut self, timeout: Duration) -> Self {
        self.peer_watchdog = timeout;
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
    /// # use distlock::HoldsEndWith;
    /// // What a child works on stays locked until it has ended, whatever becomes of us.
    /// let client = distlock::Client::builder("memory:")
    ///     .holds_end_with(HoldsEndWith::Children)
    ///     .connect()
    ///     .await?;
    /// # drop(client); Ok(()) }
    /// ```
    pub const fn holds_end_with(mut self, holds_end_with: HoldsEndWith) -> Self {
        self.holds_end_with = holds_end_with;
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
        check_lease(self.peer_watchdog).map_err(|_| {
            Error::invalid_option(
                "peer_watchdog",
                "no lease can be as long or as short as this",
            )
        })?;
        let store = connect::Store {
            url: &self.url,
            prefix: self.prefix.into(),
            connect_timeout: self.connect_timeout,
            command_timeout: self.command_timeout,
            client: Uuid::new_v4(),
            holds_end_with: self.holds_end_with,
        };
        let connected = store.connect().await?;
        let settings = Settings {
            command_timeout: self.command_timeout,
            handoff_limit: self.handoff_limit,
            handoff_window: self.handoff_window,
            label: Arc::new(Label::new(self.label.map(Into::into))),
            lapses: connected.lapses,
            peer_watchdog: connected.has_peers.then_some(self.peer_watchdog),
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
