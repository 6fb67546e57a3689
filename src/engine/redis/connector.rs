//! Connector: the address of a server, and how connections to it are made.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, RedisResult,
};
use tokio::runtime::Handle;

mod sentinel_connector;
#[cfg(feature = "simulation")]
mod simulated;

use self::sentinel_connector::SentinelConnector;
pub(crate) use self::sentinel_connector::{CallStart, master_changed};
use super::node_addr::NodeAddr;
use super::sentinel::{MasterTerm, SentinelDetails, Sentinels};
use super::settings::{Network, RedisSettings};
use super::{Tls, failure};
use crate::engine::{StoreError, StoreErrorKind};

/// The TCP user timeout is twice the command timeout, with this as the longest command timeout: at most 60 s.
const MAX_COMMAND_TIME: Duration = Duration::from_secs(30);

/// Error for a request that a cluster's server has redirected.
const CLUSTER_NODE: &str = "the server is a node of a cluster; use `redis-cluster://`";

/// A server, and the user to connect as.
#[derive(Clone, Default)]
pub struct Address {
    /// Host and port, the path of a unix socket, or the sentinels.
    pub endpoint: Endpoint,
    /// The number of the database.
    pub database: i64,
    /// The ACL user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The TLS configuration; `None` for an unencrypted connection.
    pub tls: Option<Tls>,
}

/// The location of a server.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A TCP port.
    Tcp(String, u16),
    /// A unix socket.
    Unix(std::path::PathBuf),
    /// The address that the sentinels of a master report.
    Sentinels(Sentinels),
}

/// How far a connection is protected from being read on its way to a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TransportSecurity {
    /// Encrypted, and the server's certificate was verified.
    Encrypted,
    /// Unencrypted within this machine: only its privileged users can read the traffic.
    Local,
    /// Unencrypted: anyone on the path can read the traffic.
    Plaintext,
}

/// Makes every connection to one server.
#[derive(Clone)]
pub(crate) struct Connector {
    target: Target,
    connect_timeout: Duration,
    command_timeout: Duration,
    /// Whether the server is configured as a node of a cluster.
    is_cluster_node: bool,
}

#[derive(Clone)]
enum Target {
    /// One address, whatever server is there.
    Fixed(Transport),
    /// The address of the current master.
    Sentinels(Arc<SentinelConnector>),
}

/// How one address is reached. One variant never becomes the other: traffic that is to be encrypted must not be sent in
/// the clear.
#[derive(Clone)]
pub(super) enum Transport {
    Encrypted(Tls, Box<ConnectionInfo>),
    Plain {
        client: Client,
        /// Whether a connection was made before: then the port does not speak TLS.
        has_connected: Arc<AtomicBool>,
    },
    #[cfg(feature = "simulation")]
    Simulated(simulated::SimulatedTransport),
}

impl Address {
    pub(crate) fn transport_security(&self) -> TransportSecurity {
        if self.tls.is_some() {
            return TransportSecurity::Encrypted;
        }
        let is_local = match &self.endpoint {
            Endpoint::Unix(_) => true,
            Endpoint::Tcp(host, _) => is_loopback(host),
            // The master's address is not known in advance, but it is not far from its sentinels.
            Endpoint::Sentinels(sentinels) => {
                sentinels.hosts.iter().all(|(host, _)| is_loopback(host))
            }
        };
        if is_local {
            TransportSecurity::Local
        } else {
            TransportSecurity::Plaintext
        }
    }

    /// Returns an address with the same user, database and security at another host.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        Self {
            endpoint: Endpoint::Tcp(host.to_owned(), port),
            ..self.clone()
        }
    }
}

fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    }
}

impl Transport {
    pub(super) fn new(address: &Address, settings: &RedisSettings) -> Result<Self, StoreError> {
        let transport = || {
            let info = connection_info(address, settings)?;
            match (&settings.network, &address.tls) {
                #[cfg(feature = "simulation")]
                (Network::Simulated(host), _) => Ok(Self::Simulated(
                    simulated::SimulatedTransport::new(host, info),
                )),
                (Network::System, Some(tls)) => Ok(Self::Encrypted(
                    tls.emitting_to(&settings.events),
                    Box::new(info),
                )),
                (Network::System, None) => Ok(Self::Plain {
                    client: Client::open(info)?,
                    has_connected: Arc::default(),
                }),
            }
        };
        transport().map_err(|error| failure::from_connect_error(&error))
    }

    /// Makes a connection, within `limit`.
    pub(super) async fn open(
        &self,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<MultiplexedConnection, StoreError> {
        match self {
            Self::Encrypted(tls, info) => tls.open(info, config, limit).await,
            Self::Plain {
                client,
                has_connected,
            } => {
                let config = config.set_connection_timeout(Some(limit));
                let made = client.get_multiplexed_async_connection_with_config(&config);
                let made = made.await.map_err(|error| match self.server() {
                    ConnectionAddr::Unix(_) => failure::from_connect_error(&error),
                    _ if has_connected.load(Ordering::Relaxed) => {
                        failure::from_connect_error(&error)
                    }
                    ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. } | _ => {
                        failure::from_first_plain_connect_error(&error)
                    }
                })?;
                has_connected.store(true, Ordering::Relaxed);
                Ok(made)
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(simulated) => simulated.open(config, limit).await,
        }
    }

    /// Returns the address alone.
    fn server(&self) -> &ConnectionAddr {
        match self {
            Self::Encrypted(_, info) => info.addr(),
            Self::Plain { client, .. } => client.get_connection_info().addr(),
            #[cfg(feature = "simulation")]
            Self::Simulated(simulated) => simulated.server(),
        }
    }
}

/// A connection, and the period in which it leads to the right server.
pub(crate) struct NewConnection {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) master_term: MasterTerm,
}

impl Connector {
    /// Creates a connector. If it has to watch sentinels, it does so on `runtime`, until its last clone is dropped.
    pub(crate) fn new(
        address: &Address,
        settings: &RedisSettings,
        runtime: &Handle,
    ) -> Result<Self, StoreError> {
        let target = match &address.endpoint {
            Endpoint::Tcp(..) | Endpoint::Unix(_) => {
                Target::Fixed(Transport::new(address, settings)?)
            }
            Endpoint::Sentinels(sentinels) => {
                let sentinels = SentinelConnector::new(address, sentinels, settings, runtime);
                Target::Sentinels(Arc::new(sentinels))
            }
        };
        Ok(Self {
            target,
            connect_timeout: settings.connect_timeout,
            command_timeout: settings.command_timeout,
            is_cluster_node: settings.cluster_node.is_some(),
        })
    }

    /// Makes a connection. If that fails, nothing was sent on it.
    pub(crate) async fn open(
        &self,
        config: AsyncConnectionConfig,
    ) -> Result<NewConnection, StoreError> {
        match &self.target {
            Target::Fixed(transport) => {
                let connection = transport.open(config, self.connect_timeout).await?;
                let master_term = MasterTerm::default();
                Ok(NewConnection {
                    connection,
                    master_term,
                })
            }
            Target::Sentinels(sentinels) => sentinels.open(config, self.connect_timeout).await,
        }
    }

    /// Waits until the master may have moved, and returns whether to retry a failed call that started at `begun`: the
    /// call has certainly done nothing, and the master may have another address by now. Always false if the server
    /// cannot fail over.
    pub(crate) async fn wait_to_retry(&self, failure: &StoreError, begun: &CallStart) -> bool {
        match &self.target {
            // The driver drops a call after its timeout. Retries end before that, so that the cause is reported.
            Target::Sentinels(sentinels) => {
                let give_up = self.command_timeout - self.command_timeout / 8;
                sentinels.wait_to_retry(failure, begun, give_up).await
            }
            Target::Fixed(_) => false,
        }
    }

    /// Returns the error for the caller. A read-only server is reported as a missing master: the caller did not choose
    /// the server.
    pub(crate) fn final_error(&self, failure: StoreError) -> StoreError {
        match &self.target {
            Target::Sentinels(sentinels) if failure::is_read_only(&failure) => {
                let name = sentinels.name();
                let why = format!(
                    "the master `{name}` has become a replica, and no new master is known yet"
                );
                StoreError::new(StoreErrorKind::NotReady, why)
            }
            Target::Sentinels(_) | Target::Fixed(_)
                if !self.is_cluster_node && failure::is_redirection(&failure) =>
            {
                StoreError::new(StoreErrorKind::Unusable, CLUSTER_NODE)
            }
            Target::Sentinels(_) | Target::Fixed(_) => failure,
        }
    }

    /// Returns whether the connector leads to the current master, whichever server that is.
    pub(crate) const fn can_fail_over(&self) -> bool {
        matches!(self.target, Target::Sentinels(_))
    }

    /// Requests a refresh: the server that was called is no master.
    pub(crate) fn refresh(&self) {
        if let Target::Sentinels(sentinels) = &self.target {
            sentinels.refresh();
        }
    }

    /// Returns what each sentinel reports about the master, for an operator; `None` without sentinels.
    pub(crate) async fn details(
        &self,
    ) -> Option<Vec<(NodeAddr, Result<SentinelDetails, StoreError>)>> {
        match &self.target {
            Target::Sentinels(sentinels) => Some(sentinels.details().await),
            Target::Fixed(_) => None,
        }
    }

    /// Returns the maximum time to make a connection.
    pub(crate) const fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Returns the address alone, for events: the other parameters of a connection are private.
    pub(crate) fn server(&self) -> String {
        match &self.target {
            Target::Fixed(transport) => transport.server().to_string(),
            Target::Sentinels(sentinels) => format!("master `{}`", sentinels.name()),
        }
    }
}

fn connection_info(address: &Address, settings: &RedisSettings) -> RedisResult<ConnectionInfo> {
    let addr = match (&address.endpoint, &address.tls) {
        (Endpoint::Tcp(host, port), None) => ConnectionAddr::Tcp(host.clone(), *port),
        // The crate itself cannot connect to such an address: its own TLS is not compiled in.
        (Endpoint::Tcp(host, port), Some(_)) => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
        (Endpoint::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
        (Endpoint::Sentinels(_), _) => {
            let why = "the sentinels must report the address of the master first";
            return Err((ErrorKind::InvalidClientConfig, why).into());
        }
    };
    // RESP3, because a connection then reports its own end, and messages can share it with commands. No CLIENT
    // SETINFO: it needs a permission that locks do not need.
    let mut redis = RedisConnectionInfo::default()
        .set_db(address.database)
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    if let Some(user) = &address.user {
        redis = redis.set_username(user);
    }
    // A user without a password still has to log in, or the connection would silently act as the default user.
    let empty = address.user.as_ref().map(|_| String::new());
    if let Some(password) = address.password.as_ref().or(empty.as_ref()) {
        redis = redis.set_password(password);
    }
    // The kernel gives up a silent peer long before the tombstone of an undone request expires
    // (`protocol::tombstones::TOMBSTONE_TTL`).
    let tcp = redis::io::tcp::TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(
            redis::io::tcp::socket2::TcpKeepalive::new().with_time(Duration::from_secs(15)),
        );
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(settings.command_timeout.min(MAX_COMMAND_TIME) * 2);
    Ok(addr
        .into_connection_info()?
        .set_redis_settings(redis)
        .set_tcp_settings(tcp))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "redis:{host}:{port}"),
            Self::Unix(path) => write!(f, "redis+unix:{}", path.display()),
            Self::Sentinels(sentinels) => write!(f, "redis-sentinel:{sentinels}"),
        }
    }
}

impl Default for Endpoint {
    fn default() -> Self {
        Self::Tcp("127.0.0.1".into(), 6379)
    }
}

/// Omits the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("endpoint", &self.endpoint)
            .field("database", &self.database)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("tls", &self.tls)
            .finish()
    }
}

/// Omits the password.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.server()).finish()
    }
}
