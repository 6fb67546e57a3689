//! Locks on one Redis or Valkey server, in Redisson's format.
//!
//! Three connections: one for callers who wait, on their own runtime; one for what nobody waits for
//! (renewals, releases of dropped guards) and one that listens, both on the driver's own thread. Who watches has one
//! more for each watch, and who asks for more than a server's word (`assurance`) two more for what takes that.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::Level;

mod alone;
mod apart;
mod assurance;
mod batch;
mod cluster;
mod connection;
mod door;
mod examine;
mod failure;
mod find;
mod format;
mod identity;
mod info;
mod inspect;
mod keys;
mod manner;
mod overhear;
mod pace;
mod papers;
mod pubsub;
mod record;
mod scripts;
mod sentinel;
mod settings;
mod silence;
mod site;
mod slot;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod unscripted;

pub use self::assurance::{Assurance, Replicas};
use self::batch::Batches;
pub use self::cluster::Cluster;
use self::connection::{Connection, Terms};
pub use self::door::{Address, Place};
use self::door::{Door, Privacy};
use self::identity::Met;
use self::info::Info;
use self::keys::Keys;
pub use self::manner::Manner;
use self::overhear::Overhear;
use self::pace::{LONGEST_PAUSE, PAUSE, at_random};
pub use self::papers::{Papers, Part, Pem, Unfit};
use self::pubsub::PubSub;
use self::record::Record;
pub use self::sentinel::Sentinels;
pub use self::settings::{Settings, Transport};
pub use self::tls::Tls;
use self::unscripted::{Unscripted, WaitedFor};
use crate::engine::events::Events;
use crate::engine::{Answer, Cause, Engine, Failure, Feed, Finding, Listener, Page, Uptime};
use crate::protocol::{Channel, Holding, Kind, Reply, Request};

/// A server.
#[derive(Debug)]
pub struct Redis {
    server: String,
    place: String,
    privacy: Privacy,
    keys: Keys,
    waited_for: Arc<Batches>,
    apart: Connection,
    /// In place of both for what somebody relies on, where that takes more than an answer: it may take longer, and hold up
    /// whatever comes behind it.
    promises: Option<(Arc<Batches>, Connection)>,
    /// What it takes for a grant to count.
    assurance: Assurance,
    met: Arc<Met>,
    pubsub: PubSub,
    /// In place of scripts: for those who wait, and for what nobody waits for.
    unscripted: Option<[Unscripted; 2]>,
    overhear: Overhear,
    /// The sets of keys that an inspection may not read.
    unreadable: inspect::Unreadable,
    events: Events,
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
        let redis = Arc::new(Self::new(&address, &settings, apart)?);
        match redis.waited_for.connection().ready().await {
            Ok(()) => {}
            Err(failure) if settings.may_be_down && failure.is_passing() => {
                let (server, why) = (redis.server.clone(), failure.detail);
                settings.events.emit(Level::WARN, move || {
                    tracing::warn!(server, why, "not reachable yet");
                });
                return Ok(redis);
            }
            Err(failure) => return Err(failure),
        }
        // A server that does not answer this is met again soon enough.
        let _ = tokio::time::timeout(settings.connect_timeout, redis.warn_of_eviction()).await;
        Ok(redis)
    }

    /// One that is connected to when it is needed.
    fn new(address: &Address, settings: &Settings, apart: &Handle) -> Result<Self, Failure> {
        let door = Door::new(address, settings, apart)?;
        let keys = Keys::new(settings.prefix.clone(), settings.manner());
        // What is in different slots cannot be in one call.
        let together = settings.shard.is_none();
        let met = Arc::<Met>::default();
        let connection = |patience, assurance| {
            let terms = Terms {
                met: met.clone(),
                assurance,
                record: Record::new(keys.clone(), settings.shard.is_some()),
                events: settings.events.clone(),
            };
            Connection::new(door.clone(), patience, terms)
        };
        let patience = settings.command_timeout;
        // Nobody waits there but the driver, which gives up only what took too long.
        let apart_patience = Duration::ZERO;
        let promises = (!settings.assurance.is_none()).then(|| {
            let assured = |patience| connection(patience, settings.assurance.clone());
            let waited_for = Batches::new(assured(patience), keys.clone(), together);
            (waited_for, assured(apart_patience))
        });
        let unscripted =
            |waited_for| Unscripted::start(door.clone(), keys.clone(), settings, waited_for, apart);
        let callers = connection(patience, Assurance::default());
        Ok(Self {
            server: address.place.to_string(),
            place: format!("{}/{}/{}", address.place, address.database, settings.prefix),
            privacy: address.privacy(),
            waited_for: Batches::new(callers, keys.clone(), together),
            apart: connection(apart_patience, Assurance::default()),
            promises,
            assurance: settings.assurance.clone(),
            met: met.clone(),
            pubsub: PubSub::start(door.clone(), settings, apart),
            unscripted: (!settings.scripts)
                .then(|| [WaitedFor::ByCallers, WaitedFor::ByTheDriver].map(unscripted)),
            overhear: Overhear {
                door,
                keys: keys.clone(),
                command_timeout: settings.command_timeout,
            },
            unreadable: inspect::Unreadable::default(),
            events: settings.events.clone(),
            keys,
        })
    }

    /// For what somebody relies on and waits for.
    fn promises(&self) -> &Arc<Batches> {
        let promises = self.promises.as_ref();
        promises.map_or(&self.waited_for, |(waited_for, _)| waited_for)
    }

    /// The same, where nobody waits for it.
    fn promises_apart(&self) -> &Connection {
        let promises = self.promises.as_ref();
        promises.map_or(&self.apart, |(_, apart)| apart)
    }

    /// What a request goes by by itself.
    fn line(&self, request: &Request) -> &Connection {
        let batches = match scripts::promises(request) {
            true => self.promises(),
            false => &self.waited_for,
        };
        batches.connection()
    }

    /// What a request goes by that nobody waits for.
    fn line_apart(&self, request: &Request) -> &Connection {
        if scripts::promises(request) {
            self.promises_apart()
        } else {
            &self.apart
        }
    }

    /// Whoever is at the other end is met at once, and not when it is next needed. Never resolves.
    #[expect(clippy::disallowed_methods, reason = "engines may wait")]
    async fn stay_connected(&self) {
        let mut pause = PAUSE;
        loop {
            match self.apart.ready().await {
                Ok(()) => {
                    pause = PAUSE;
                    self.apart.gone().await;
                }
                Err(_) => {
                    tokio::time::sleep(at_random(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
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
        let policy = Info::new(&text).get("maxmemory_policy");
        if let Some(policy) = policy.filter(|policy| *policy != "noeviction") {
            let policy = policy.to_owned();
            self.events.emit(Level::WARN, move || {
                tracing::warn!(
                    policy,
                    "this server may evict held locks when memory is short; set maxmemory-policy noeviction"
                );
            });
        }
    }
}

impl Engine for Redis {
    fn call(&self, request: Request) -> Answer<Result<Reply, Failure>> {
        match &self.unscripted {
            Some([waited_for, _]) => waited_for.call(request),
            None if scripts::promises(&request) => self.promises().run(request),
            None => self.waited_for.run(request),
        }
    }

    fn call_apart(self: Arc<Self>, requests: Vec<Request>) -> Answer<Vec<Result<Reply, Failure>>> {
        match &self.unscripted {
            Some([_, apart]) => apart.call_all(requests),
            None => Box::pin(apart::call(self, requests)),
        }
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn server(&self) -> String {
        self.server.clone()
    }

    fn uptime(self: Arc<Self>) -> Answer<Result<Option<Uptime>, Failure>> {
        Box::pin(async move {
            // Without scripts requests have a connection of their own, so this one is to be heard from each time.
            let anew = self.unscripted.is_some();
            let uptime = self.promises().connection().uptime(anew).await;
            uptime.map(Some)
        })
    }

    fn unrest(self: Arc<Self>) -> Answer<()> {
        Box::pin(async move {
            tokio::select! {
                () = self.met.changed() => {}
                () = self.stay_connected() => {}
            }
        })
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
        Box::pin(async move { find::find(&self, &pattern, from).await })
    }

    fn inspect(
        self: Arc<Self>,
        name: Arc<str>,
    ) -> Answer<Result<Option<(Kind, Holding)>, Failure>> {
        Box::pin(async move { inspect::inspect(&self, name).await })
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

    fn examine(self: Arc<Self>, probe: bool) -> Answer<Result<Vec<Finding>, Failure>> {
        Box::pin(examine::examine(self, probe))
    }
}
