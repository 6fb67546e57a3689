//! Locks on one Redis or Valkey server, in Redisson's format.
//!
//! The engine has three connections: one for callers that wait, on their own runtime; one for background calls that no
//! caller waits for (renewals, releases of dropped guards); and one for pub/sub. The last two run on the driver's own
//! thread. Each watch adds one connection. A durability policy (`durability`) adds two for the calls that need it, and
//! so does `scripts=off`, for its transactions (`optimistic`).

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::Level;

mod background;
mod backoff;
mod batch;
mod call_priority;
mod cluster;
mod connection;
mod connector;
mod diagnose;
mod durability;
mod failure;
mod find;
mod format;
mod incarnation;
mod info;
mod inspect;
mod keys;
mod monitor;
mod node_addr;
mod optimistic;
mod promotion_record;
mod pubsub;
mod pubsub_mode;
mod scripts;
mod sentinel;
mod settings;
mod single;
mod slot;
mod stall_detector;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod tls_material;

use self::backoff::{INITIAL_BACKOFF, MAX_BACKOFF, jittered};
use self::batch::Batcher;
use self::call_priority::CallPriority;
pub use self::cluster::Cluster;
use self::connection::{Connection, ConnectionContext};
pub use self::connector::{Address, Endpoint};
use self::connector::{Connector, TransportSecurity};
pub use self::durability::{DurabilityPolicy, ReplicaAcks};
use self::incarnation::IncarnationTracker;
use self::info::Info;
use self::keys::Keys;
use self::monitor::PatternMonitor;
use self::optimistic::OptimisticCalls;
use self::promotion_record::PromotionRecord;
use self::pubsub::PubSub;
pub use self::pubsub_mode::PubSubMode;
pub use self::sentinel::Sentinels;
pub use self::settings::{Network, RedisSettings};
pub use self::tls::Tls;
pub use self::tls_material::{PemSource, TlsConfigError, TlsMaterial, TlsPart};
use crate::engine::events::Events;
use crate::engine::{
    BoxFuture, ChangeFeed, Diagnostic, Engine, Page, StoreError, StoreErrorKind, Subscription,
    Uptime,
};
use crate::protocol::{Channel, Kind, LockSnapshot, Reply, Request};

/// The engine for one Redis or Valkey server.
#[derive(Debug)]
pub struct Redis {
    server: String,
    namespace_id: String,
    transport_security: TransportSecurity,
    keys: Keys,
    foreground: Arc<Batcher>,
    background: Connection,
    /// Used in place of `foreground` and `background` for calls that a client relies on, if the policy requires more
    /// than a reply: such a call may take longer, and delays every call queued behind it.
    durable: Option<(Arc<Batcher>, Connection)>,
    /// Conditions under which a grant counts.
    durability: DurabilityPolicy,
    incarnations: Arc<IncarnationTracker>,
    pubsub: PubSub,
    /// Used in place of scripts: one task for foreground calls, and one for background calls.
    optimistic: Option<[OptimisticCalls; 2]>,
    monitor: PatternMonitor,
    /// The sets of keys that an inspection may not read.
    denied_scopes: inspect::DeniedScopes,
    events: Events,
}

impl Redis {
    /// Connects, and warns if the server may evict locks. Background calls run on `background`.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or refuses the user, password or database.
    #[expect(clippy::disallowed_methods, reason = "engines may wait")]
    pub async fn connect(
        address: Address,
        settings: RedisSettings,
        background: &Handle,
    ) -> Result<Arc<Self>, StoreError> {
        let redis = Arc::new(Self::new(&address, &settings, background)?);
        match redis.foreground.connection().ready().await {
            Ok(()) => {}
            Err(failure) if settings.lazy_connect && failure.is_transient() => {
                let (server, why) = (redis.server.clone(), failure.detail);
                settings.events.emit(Level::WARN, move || {
                    tracing::warn!(target: "distlock::connection", server, error = why, "the server is not reachable yet");
                });
                return Ok(redis);
            }
            Err(failure) => return Err(failure),
        }
        // If the server does not reply to this check in time, a later call notices it soon enough.
        let _ = tokio::time::timeout(settings.connect_timeout, redis.warn_of_eviction()).await;
        Ok(redis)
    }

    /// Creates the engine without connecting: a connection is made when it is needed.
    fn new(
        address: &Address,
        settings: &RedisSettings,
        background: &Handle,
    ) -> Result<Self, StoreError> {
        let connector = Connector::new(address, settings, background)?;
        let keys = Keys::new(settings.prefix.clone(), settings.pubsub_mode());
        // Keys in different slots cannot be in one call.
        let batching = settings.cluster_node.is_none();
        let incarnations = Arc::<IncarnationTracker>::default();
        let connection = |stall_timeout, durability| {
            let context = ConnectionContext {
                incarnations: incarnations.clone(),
                durability,
                promotion_record: PromotionRecord::new(
                    keys.clone(),
                    settings.cluster_node.is_some(),
                ),
                events: settings.events.clone(),
            };
            Connection::new(connector.clone(), stall_timeout, context)
        };
        let stall_timeout = settings.command_timeout;
        // Only the driver waits for these calls, and it gives up only calls that took too long.
        let background_stall_timeout = Duration::ZERO;
        let durable = (!settings.durability.is_none()).then(|| {
            let assured = |stall_timeout| connection(stall_timeout, settings.durability.clone());
            let foreground = Batcher::new(assured(stall_timeout), keys.clone(), batching);
            (foreground, assured(background_stall_timeout))
        });
        let optimistic = |origin| {
            OptimisticCalls::start(
                connector.clone(),
                keys.clone(),
                settings,
                origin,
                background,
            )
        };
        let callers = connection(stall_timeout, DurabilityPolicy::default());
        Ok(Self {
            server: address.endpoint.to_string(),
            namespace_id: format!(
                "{}/{}/{}",
                address.endpoint, address.database, settings.prefix
            ),
            transport_security: address.transport_security(),
            foreground: Batcher::new(callers, keys.clone(), batching),
            background: connection(background_stall_timeout, DurabilityPolicy::default()),
            durable,
            durability: settings.durability.clone(),
            incarnations: incarnations.clone(),
            pubsub: PubSub::start(connector.clone(), settings, background),
            optimistic: (!settings.scripts)
                .then(|| [CallPriority::Foreground, CallPriority::Background].map(optimistic)),
            monitor: PatternMonitor {
                connector,
                keys: keys.clone(),
                command_timeout: settings.command_timeout,
            },
            denied_scopes: inspect::DeniedScopes::default(),
            events: settings.events.clone(),
            keys,
        })
    }

    /// Returns the batcher for foreground calls that grant or renew: where there is a durability policy, its own.
    fn foreground_for_grants(&self) -> &Arc<Batcher> {
        let durable = self.durable.as_ref();
        durable.map_or(&self.foreground, |(foreground, _)| foreground)
    }

    /// Returns the connection for background calls that grant or renew, in the same way.
    fn background_for_grants(&self) -> &Connection {
        let durable = self.durable.as_ref();
        durable.map_or(&self.background, |(_, background)| background)
    }

    /// Returns the connection for a foreground request that is sent in a call of its own.
    fn connection_for(&self, request: &Request) -> &Connection {
        let batches = match scripts::needs_durability(request) {
            true => self.foreground_for_grants(),
            false => &self.foreground,
        };
        batches.connection()
    }

    /// Returns the connection for a background request.
    fn background_connection_for(&self, request: &Request) -> &Connection {
        if scripts::needs_durability(request) {
            self.background_for_grants()
        } else {
            &self.background
        }
    }

    /// Reconnects at once after a disconnect, so that a changed server is noticed now and not at the next call. Never
    /// resolves.
    #[expect(clippy::disallowed_methods, reason = "engines may wait")]
    async fn keep_connected(&self) {
        let mut backoff = INITIAL_BACKOFF;
        loop {
            match self.background.ready().await {
                Ok(()) => {
                    backoff = INITIAL_BACKOFF;
                    self.background.disconnected().await;
                }
                Err(_) => {
                    tokio::time::sleep(jittered(backoff)).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    /// Warns if the server may evict locks: every lock key has a time to live, so every policy but `noeviction` may
    /// evict it.
    async fn warn_of_eviction(&self) {
        let mut info = redis::cmd("INFO");
        info.arg("memory");
        // Managed services often forbid INFO; then the policy is unknown.
        let Ok(reply) = self.foreground.connection().send(&info).await else {
            return;
        };
        let text: String = redis::from_redis_value(reply).unwrap_or_default();
        let policy = Info::new(&text).get("maxmemory_policy");
        if let Some(policy) = policy.filter(|policy| *policy != "noeviction") {
            let policy = policy.to_owned();
            self.events.emit(Level::WARN, move || {
                tracing::warn!(
                    target: "distlock::connection",
                    policy,
                    "this server may evict held locks when memory is short; set maxmemory-policy noeviction"
                );
            });
        }
    }
}

impl Engine for Redis {
    fn call(&self, request: Request) -> BoxFuture<Result<Reply, StoreError>> {
        match &self.optimistic {
            Some([foreground, _]) => foreground.call(request),
            None if scripts::needs_durability(&request) => {
                self.foreground_for_grants().run(request)
            }
            None => self.foreground.run(request),
        }
    }

    fn call_background(
        self: Arc<Self>,
        requests: Vec<Request>,
    ) -> BoxFuture<Vec<Result<Reply, StoreError>>> {
        match &self.optimistic {
            Some([_, background]) => background.call_all(requests),
            None => Box::pin(background::call(self, requests)),
        }
    }

    fn namespace_id(&self) -> String {
        self.namespace_id.clone()
    }

    fn server_id(&self) -> String {
        self.server.clone()
    }

    fn uptime(self: Arc<Self>) -> BoxFuture<Result<Option<Uptime>, StoreError>> {
        Box::pin(async move {
            // Without scripts, requests use connections of their own, so this one needs a new reply each time.
            let refresh = self.optimistic.is_some();
            let uptime = self
                .foreground_for_grants()
                .connection()
                .uptime(refresh)
                .await;
            uptime.map(Some)
        })
    }

    fn incarnation_changed(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            tokio::select! {
                () = self.incarnations.changed() => {}
                () = self.keep_connected() => {}
            }
        })
    }

    fn max_renewals_per_call(&self) -> usize {
        match self.optimistic {
            Some(_) => 1,
            None => usize::MAX,
        }
    }

    fn subscribe(self: Arc<Self>, channel: Channel) -> BoxFuture<Result<Subscription, StoreError>> {
        Box::pin(async move {
            let channel = self.keys.channel_text(&channel);
            self.pubsub.subscribe(channel).await
        })
    }

    fn monitor(self: Arc<Self>, pattern: String) -> BoxFuture<Result<ChangeFeed, StoreError>> {
        Box::pin(async move { self.monitor.start(pattern).await })
    }

    fn scan(self: Arc<Self>, pattern: String, from: u64) -> BoxFuture<Result<Page, StoreError>> {
        Box::pin(async move { find::find(&self, &pattern, from).await })
    }

    fn inspect(
        self: Arc<Self>,
        name: Arc<str>,
    ) -> BoxFuture<Result<Option<(Kind, LockSnapshot)>, StoreError>> {
        Box::pin(async move { inspect::inspect(&self, name).await })
    }

    fn set_label(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> BoxFuture<Result<(), StoreError>> {
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
            self.background.send(&cmd).await.map(|_| ())
        })
    }

    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> BoxFuture<Result<Vec<Option<String>>, StoreError>> {
        Box::pin(async move {
            if clients.is_empty() {
                return Ok(Vec::new());
            }
            let mut get = redis::cmd("MGET");
            for client in &clients {
                get.arg(self.keys.label(client));
            }
            let labels = self.foreground.connection().send(&get).await?;
            redis::from_redis_value(labels)
                .map_err(|error| StoreError::new(StoreErrorKind::Unexpected, error.to_string()))
        })
    }

    fn diagnose(self: Arc<Self>, probe: bool) -> BoxFuture<Result<Vec<Diagnostic>, StoreError>> {
        Box::pin(diagnose::diagnose(self, probe))
    }
}
