//! Urls of Redis: `redis://`, `rediss://`, `redis-sentinel://`, `redis-cluster://` and
//! `redis+unix:`.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use url::Url;

use super::tls::{self, Encrypted};
use super::{Connected, HostPorts, StoreConfig, masked};
use crate::driver::clock::Clock;
use crate::engine::redis::{
    Address, Cluster, DurabilityPolicy, Endpoint, Network, PubSubMode, Redis, RedisSettings,
    ReplicaAcks, Sentinels, Tls,
};
use crate::engine::{Engine, StoreError, StoreErrorKind};
use crate::error::Error;
use crate::options::Durability;

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const NO_SUCH_DATABASE: &str = "the server has no such database";

pub(super) async fn connect(
    store: &StoreConfig<'_>,
    url: &Url,
    hosts: HostPorts,
) -> Result<Connected, Error> {
    let mut parameters = RedisParameters::parse(store, url)?;
    let scripts = parameters.scripts;
    let encrypted = match url.scheme() {
        "rediss" => Encrypted::Always,
        "redis-cluster" | "redis-sentinel" => Encrypted::IfRequested,
        _ => Encrypted::Never,
    };
    let pubsub_mode = parameters.pubsub_mode;
    let tls = std::mem::take(&mut parameters.tls);
    let tls = tls.resolve(store, encrypted).await?;
    let address = match url.scheme() {
        "redis+unix" => unix(store, url, parameters)?,
        "redis-sentinel" => sentinels(store, url, &hosts, parameters, tls)?,
        "redis-cluster" => cluster(store, url, &parameters, tls)?,
        _ => tcp(store, url, parameters, tls)?,
    };
    let background = store.background()?;
    let waker_executor = background.waker_executor();
    let settings = RedisSettings {
        prefix: store.prefix.clone(),
        connect_timeout: store.connect_timeout,
        command_timeout: store.command_timeout,
        scripts,
        lazy_connect: store.lazy_connect,
        durability: durability(store, scripts)?,
        cluster_node: None,
        events: background.events(),
        network: store.network(),
    };
    let runtime = background.runtime();
    let engine: Result<Arc<dyn Engine>, StoreError> = if url.scheme() == "redis-cluster" {
        let seeds = with_ports(&hosts, DEFAULT_PORT);
        let cluster = Cluster::connect(&seeds, address, pubsub_mode, settings, runtime);
        let cluster = waker_executor.with_waker_proxy(cluster).await;
        cluster.map(|cluster| cluster as Arc<dyn Engine>)
    } else {
        let redis = Redis::connect(address, settings, runtime);
        let redis = waker_executor.with_waker_proxy(redis).await;
        redis.map(|redis| redis as Arc<dyn Engine>)
    };
    let engine = engine.map_err(|failure| {
        if failure.detail.starts_with("ERR DB index") {
            return store.invalid(NO_SUCH_DATABASE);
        }
        // The url names a master that no sentinel knows.
        if failure.kind == StoreErrorKind::Unusable {
            return store.invalid(failure.detail);
        }
        Error::from_failure(&masked(store.url).into(), failure)
    })?;
    Ok(Connected {
        engine,
        clock: store.clock(),
        background,
        leases_expire: true,
        is_shared_with_redisson: true,
    })
}

impl StoreConfig<'_> {
    /// Returns the network that connections use.
    fn network(&self) -> Network {
        #[cfg(feature = "simulation")]
        if let Some(machine) = &self.machine {
            return Network::Simulated(machine.clone());
        }
        Network::System
    }

    /// Returns the clock of the leases.
    fn clock(&self) -> Clock {
        #[cfg(feature = "simulation")]
        if let Some(machine) = &self.machine {
            return Clock::Simulated(machine.clone());
        }
        Clock::Boot
    }
}

/// Returns what a grant needs in order to count.
fn durability(store: &StoreConfig<'_>, scripts: bool) -> Result<DurabilityPolicy, Error> {
    let durability = DurabilityPolicy {
        replica_acks: match store.durability {
            Durability::Server => None,
            Durability::Replicas { acks, timeout } => Some(ReplicaAcks { acks, timeout }),
        },
        failover_delay: store.failover_delay,
    };
    if !scripts && !durability.is_none() {
        return Err(
            store.invalid("`durability` and `failover_delay` need scripts; remove `scripts=off`")
        );
    }
    Ok(durability)
}

fn with_ports(hosts: &HostPorts, port: u16) -> Vec<(String, u16)> {
    let hosts = hosts.iter();
    let hosts = hosts.map(|(host, own)| (host.clone(), own.unwrap_or(port)));
    hosts.collect()
}

/// The parameters after the question mark.
struct RedisParameters {
    database: Option<i64>,
    user: Option<String>,
    password: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    scripts: bool,
    /// How messages are published in a cluster.
    pubsub_mode: Option<PubSubMode>,
    tls: tls::TlsParameters,
}

impl RedisParameters {
    fn parse(store: &StoreConfig<'_>, url: &Url) -> Result<Self, Error> {
        let mut parameters = Self {
            database: None,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            scripts: true,
            pubsub_mode: None,
            tls: tls::TlsParameters::default(),
        };
        let is_sentinel = url.scheme() == "redis-sentinel";
        let is_cluster = url.scheme() == "redis-cluster";
        // Not the url crate's pairs: they follow the rules of web forms, where a `+` stands for a
        // space.
        let pairs = url.query().unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(store, value)?;
            match decode(store, key)?.as_deref() {
                Some("db") => {
                    parameters.database = Some(database(store, &value.unwrap_or_default())?);
                }
                Some("user") => parameters.user = value,
                Some("pass") => parameters.password = value,
                Some("sentinel_user") if is_sentinel => parameters.sentinel_user = value,
                Some("sentinel_pass") if is_sentinel => parameters.sentinel_password = value,
                Some("pubsub") if is_cluster => {
                    parameters.pubsub_mode = Some(match value.as_deref() {
                        Some("plain") => PubSubMode::Plain,
                        Some("sharded") => PubSubMode::Sharded,
                        Some("both") => PubSubMode::Both,
                        _ => {
                            return Err(
                                store.invalid("`pubsub` must be `plain`, `sharded` or `both`")
                            );
                        }
                    });
                }
                Some("scripts") => {
                    parameters.scripts = match value.as_deref() {
                        Some("on") => true,
                        Some("off") => false,
                        _ => return Err(store.invalid("`scripts` must be `on` or `off`")),
                    }
                }
                Some(key) if parameters.tls.accept(store, key, value.as_deref())? => {}
                _ => {
                    let known = if is_cluster {
                        "supported parameters are pubsub, tls, ca, cert and key"
                    } else if is_sentinel {
                        "supported parameters are sentinel_user, sentinel_pass, scripts, tls, ca, cert and key"
                    } else {
                        "supported parameters are db, user, pass, scripts, ca, cert and key"
                    };
                    return Err(store.invalid(format!(
                        "unknown parameter{}; {known}",
                        parameters.describe(url, key)
                    )));
                }
            }
        }
        Ok(parameters)
    }

    /// Names an unknown parameter, unless it may be the rest of a password whose `?` or `&` should
    /// have been written as `%3F` or `%26`.
    fn describe(&self, url: &Url, key: &str) -> String {
        let is_name = key.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'));
        let may_be_password = url.query().is_some_and(|query| query.contains('@'))
            || self.password.is_some()
            || self.sentinel_password.is_some();
        match is_name && !key.is_empty() && !may_be_password {
            true => format!(" `{key}`"),
            false => String::new(),
        }
    }

    /// Rejects parts of the address that are given as parameters.
    fn reject_address_parameters(&self, store: &StoreConfig<'_>) -> Result<(), Error> {
        if self.database.is_none() && self.user.is_none() && self.password.is_none() {
            return Ok(());
        }
        let reason = "database, user and password must be before the question mark of this url";
        Err(store.invalid(reason))
    }
}

fn tcp(
    store: &StoreConfig<'_>,
    url: &Url,
    parameters: RedisParameters,
    tls: Option<Tls>,
) -> Result<Address, Error> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| store.invalid("the url has no host; try redis://127.0.0.1/"))?;
    // The url crate keeps the brackets of an IPv6 address; sockets do not accept them.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    parameters.reject_address_parameters(store)?;
    let database = match url.path().trim_matches('/') {
        "" => 0,
        number => database(store, number)?,
    };
    Ok(Address {
        endpoint: Endpoint::Tcp(host.to_owned(), url.port().unwrap_or(DEFAULT_PORT)),
        database,
        user: decode(store, url.username())?,
        password: decode(store, url.password().unwrap_or_default())?,
        tls,
    })
}

/// Parses a sentinel url. Its parts before the question mark are about the Redis servers, except
/// for the hosts.
fn sentinels(
    store: &StoreConfig<'_>,
    url: &Url,
    hosts: &HostPorts,
    parameters: RedisParameters,
    tls: Option<Tls>,
) -> Result<Address, Error> {
    parameters.reject_address_parameters(store)?;
    let path = url.path();
    // The name is sent to every server that replies as a sentinel, and this one may be a password
    // with a `/` in it.
    if path.contains('@') {
        let reason = "`@` in a master's name must be written as %40, and `/` in a password as %2F";
        return Err(store.invalid(reason));
    }
    let path = path.strip_prefix('/').unwrap_or(path);
    let (name, number) = path.split_once('/').unwrap_or((path, ""));
    let name = decode(store, name)?;
    let name = name.ok_or_else(|| {
        store.invalid(
            "the url names no master; try redis-sentinel://h1:26379,h2:26379,h3:26379/mymaster/0",
        )
    })?;
    let database = match number.trim_end_matches('/') {
        "" => 0,
        number => database(store, number)?,
    };
    Ok(Address {
        endpoint: Endpoint::Sentinels(Sentinels {
            name,
            hosts: with_ports(hosts, SENTINEL_PORT),
            user: parameters.sentinel_user,
            password: parameters.sentinel_password,
        }),
        database,
        user: decode(store, url.username())?,
        password: decode(store, url.password().unwrap_or_default())?,
        tls,
    })
}

/// Parses a cluster url. Its hosts are the seeds; a cluster has only database 0.
fn cluster(
    store: &StoreConfig<'_>,
    url: &Url,
    parameters: &RedisParameters,
    tls: Option<Tls>,
) -> Result<Address, Error> {
    parameters.reject_address_parameters(store)?;
    if !parameters.scripts {
        return Err(store.invalid("locks in a cluster need scripts; remove `scripts=off`"));
    }
    if !matches!(url.path().trim_matches('/'), "" | "0") {
        return Err(store.invalid("a cluster has only database 0"));
    }
    Ok(Address {
        user: decode(store, url.username())?,
        password: decode(store, url.password().unwrap_or_default())?,
        tls,
        ..Address::default()
    })
}

fn unix(store: &StoreConfig<'_>, url: &Url, parameters: RedisParameters) -> Result<Address, Error> {
    if url.host_str().is_some_and(|host| !host.is_empty()) {
        return Err(store.invalid("the url needs three slashes: redis+unix:///path/to/socket"));
    }
    let path = decode(store, url.path())?;
    let path =
        path.ok_or_else(|| store.invalid("the url has no path; try redis+unix:///run/redis.sock"))?;
    let user = decode(store, url.username())?;
    let password = decode(store, url.password().unwrap_or_default())?;
    Ok(Address {
        endpoint: Endpoint::Unix(path.into()),
        database: parameters.database.unwrap_or(0),
        user: parameters.user.or(user),
        password: parameters.password.or(password),
        tls: None,
    })
}

fn database(store: &StoreConfig<'_>, number: &str) -> Result<i64, Error> {
    // The text is not in the error: if a password was not encoded, this may be a part of it.
    let number: u64 = number
        .parse()
        .map_err(|_| store.invalid("the database must be a number"))?;
    // Servers use 32 bits for the number.
    let number = i32::try_from(number).map_err(|_| store.invalid(NO_SUCH_DATABASE))?;
    Ok(i64::from(number))
}

fn decode(store: &StoreConfig<'_>, text: &str) -> Result<Option<String>, Error> {
    let decoded: Cow<'_, str> = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| store.invalid("user, password and path must be UTF-8"))?;
    Ok(Some(decoded.into_owned()).filter(|text| !text.is_empty()))
}
