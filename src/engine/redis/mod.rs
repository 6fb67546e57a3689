//! Locks on one Redis or Valkey server, in Redisson's format.
//!
//! Three connections: one for callers who wait, on their own runtime; one for what nobody waits for
//! (renewals, releases of dropped guards) and one that listens, both on the driver's own thread. Who watches has one
//! more for each watch.

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use tokio::runtime::Handle;

mod apart;
mod batch;
mod connection;
mod examine;
mod failure;
mod find;
mod keys;
mod overhear;
mod pubsub;
mod scripts;
mod silence;
mod unscripted;

use self::batch::Batches;
use self::connection::Connection;
use self::keys::Keys;
use self::overhear::Overhear;
use self::pubsub::PubSub;
use self::unscripted::{Unscripted, WaitedFor};
use crate::engine::{Answer, Cause, Engine, Failure, Feed, Finding, Listener, Page};
use crate::protocol::{Channel, Reply, Request};

/// However long a command may take, the network is given up after twice this.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// Which server, and as whom.
#[derive(Clone, Default)]
pub struct Address {
    /// Host and port, or the path of a unix socket.
    pub place: Place,
    /// The database's number.
    pub database: i64,
    /// The ACL user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Place {
    /// A TCP port.
    Tcp(String, u16),
    /// A unix socket.
    Unix(std::path::PathBuf),
}

/// What the engine needs to know beside the address.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Goes before every lock's name.
    pub prefix: Arc<str>,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long a reply may take before the connection is taken for dead.
    pub command_timeout: Duration,
    /// Whether the server runs scripts for us.
    pub scripts: bool,
}

/// A server.
#[derive(Debug)]
pub struct Redis {
    keys: Keys,
    waited_for: Arc<Batches>,
    apart: Connection,
    pubsub: PubSub,
    /// In place of scripts: for those who wait, and for what nobody waits for.
    unscripted: Option<[Unscripted; 2]>,
    overhear: Overhear,
}

impl Redis {
    /// Connects, and warns if the server may throw locks away. What nobody waits for runs on `apart`.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or refuses the user, password or database.
    #[expect(clippy::disallowed_methods, reason = "engines may wait")]
    pub async fn connect(
        address: Address,
        settings: Settings,
        apart: &Handle,
    ) -> Result<Arc<Self>, Failure> {
        let client = client(&address, &settings)?;
        let connecting = settings.connect_timeout;
        let keys = Keys::new(settings.prefix.clone());
        let waited_for = Connection::new(client.clone(), connecting, settings.command_timeout);
        let unscripted = |waited_for| {
            Unscripted::start(client.clone(), keys.clone(), &settings, waited_for, apart)
        };
        let redis = Arc::new(Self {
            waited_for: Batches::new(waited_for, keys.clone()),
            // Nobody waits here but the driver, which gives up only what took too long.
            apart: Connection::new(client.clone(), connecting, Duration::ZERO),
            pubsub: PubSub::start(client.clone(), &settings, apart),
            unscripted: (!settings.scripts)
                .then(|| [WaitedFor::ByCallers, WaitedFor::ByTheDriver].map(unscripted)),
            overhear: Overhear {
                client,
                keys: keys.clone(),
                connect_timeout: connecting,
                command_timeout: settings.command_timeout,
            },
            keys,
        });
        redis.waited_for.connection().ready().await?;
        // A server that does not answer this is met again soon enough.
        let _ = tokio::time::timeout(connecting, redis.warn_of_eviction()).await;
        Ok(redis)
    }

    /// Every lock key has a time to live, so every policy but `noeviction` may evict it.
    async fn warn_of_eviction(&self) {
        let mut info = redis::cmd("INFO");
        info.arg("memory");
        // Servers for rent often forbid INFO; then there is nothing to go by.
        let Ok(answer) = self.waited_for.connection().send(&info).await else {
            return;
        };
        let text: String = redis::from_redis_value(answer).unwrap_or_default();
        let policy = text
            .lines()
            .find_map(|line| line.strip_prefix("maxmemory_policy:"));
        if let Some(policy) = policy.filter(|policy| *policy != "noeviction") {
            tracing::warn!(
                policy,
                "this server may evict held locks when memory is short; set maxmemory-policy noeviction"
            );
        }
    }
}

impl Engine for Redis {
    fn call(&self, request: Request) -> Answer<Result<Reply, Failure>> {
        match &self.unscripted {
            Some([waited_for, _]) => waited_for.call(request),
            None => self.waited_for.run(request),
        }
    }

    fn call_apart(self: Arc<Self>, requests: Vec<Request>) -> Answer<Vec<Result<Reply, Failure>>> {
        match &self.unscripted {
            Some([_, apart]) => apart.call_all(requests),
            None => Box::pin(apart::call(self, requests)),
        }
    }

    fn renews_at_once(&self) -> usize {
        match self.unscripted {
            Some(_) => 1,
            None => usize::MAX,
        }
    }

    fn listen(self: Arc<Self>, channel: Channel) -> Answer<Result<Listener, Failure>> {
        Box::pin(async move {
            let channel = self.keys.channel_text(&channel);
            self.pubsub.listen(channel).await
        })
    }

    fn overhear(self: Arc<Self>, pattern: String) -> Answer<Result<Feed, Failure>> {
        Box::pin(async move { self.overhear.begin(pattern).await })
    }

    fn find(self: Arc<Self>, pattern: String, from: u64) -> Answer<Result<Page, Failure>> {
        Box::pin(async move { find::find(self, &pattern, from).await })
    }

    fn announce(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> Answer<Result<(), Failure>> {
        Box::pin(async move {
            let key = self.keys.label(&client);
            let cmd = match label {
                Some(label) => {
                    let mut set = redis::cmd("SET");
                    set.arg(key)
                        .arg(&*label)
                        .arg("PX")
                        .arg(ttl.as_millis().to_string());
                    set
                }
                None => {
                    let mut del = redis::cmd("DEL");
                    del.arg(key);
                    del
                }
            };
            self.apart.send(&cmd).await.map(|_| ())
        })
    }

    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> Answer<Result<Vec<Option<String>>, Failure>> {
        Box::pin(async move {
            if clients.is_empty() {
                return Ok(Vec::new());
            }
            let mut get = redis::cmd("MGET");
            for client in &clients {
                get.arg(self.keys.label(client));
            }
            let labels = self.waited_for.connection().send(&get).await?;
            redis::from_redis_value(labels)
                .map_err(|error| Failure::new(Cause::Unexpected, error.to_string()))
        })
    }

    fn examine(self: Arc<Self>) -> Answer<Result<Vec<Finding>, Failure>> {
        Box::pin(examine::examine(self))
    }
}

fn client(address: &Address, settings: &Settings) -> Result<Client, Failure> {
    let place = match &address.place {
        Place::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
        Place::Unix(path) => ConnectionAddr::Unix(path.clone()),
    };
    // RESP3, because a connection then says when it has ended, and messages need none of their own.
    // No CLIENT SETINFO: it needs a permission that locks do not.
    let mut redis = RedisConnectionInfo::default()
        .set_db(address.database)
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    if let Some(user) = &address.user {
        redis = redis.set_username(user);
    }
    // A user without a password still has to log in, or would silently be somebody else.
    let empty = address.user.as_ref().map(|_| String::new());
    if let Some(password) = address.password.as_ref().or(empty.as_ref()) {
        redis = redis.set_password(password);
    }
    let open = || {
        // A peer that has gone silent is given up by the kernel long before an undone request is
        // forgotten (`protocol::marks::MARK_TTL`).
        let tcp = redis::io::tcp::TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(
                redis::io::tcp::socket2::TcpKeepalive::new().with_time(Duration::from_secs(15)),
            );
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(settings.command_timeout.min(LONGEST_SILENCE) * 2);
        let info = place
            .into_connection_info()?
            .set_redis_settings(redis)
            .set_tcp_settings(tcp);
        Client::open(info)
    };
    open().map_err(|error| failure::of_connecting(&error))
}

impl Default for Place {
    fn default() -> Self {
        Self::Tcp("127.0.0.1".into(), 6379)
    }
}

/// Never the password.
impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address")
            .field("place", &self.place)
            .field("database", &self.database)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .finish()
    }
}
