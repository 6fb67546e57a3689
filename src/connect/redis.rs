//! `redis://`, `rediss://`, `redis-sentinel://`, `redis-cluster://` and `redis+unix:`.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use url::Url;

use super::tls::{self, Encrypted};
use super::{Connected, Named, Store, masked};
use crate::driver::clock::Clock;
use crate::engine::redis::{
    Address, Assurance, Cluster, Manner, Place, Redis, Replicas, Sentinels, Settings, Tls,
    Transport,
};
use crate::engine::{Cause, Engine, Failure};
use crate::error::Error;
use crate::options::Durability;

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const NO_SUCH_DATABASE: &str = "the server has no such database";

pub(super) async fn connect(
    store: &Store<'_>,
    url: &Url,
    hosts: Named,
) -> Result<Connected, Error> {
    let mut parameters = Parameters::of(store, url)?;
    let scripts = parameters.scripts;
    let encrypted = match url.scheme() {
        "rediss" => Encrypted::Always,
        "redis-cluster" | "redis-sentinel" => Encrypted::IfAsked,
        _ => Encrypted::Never,
    };
    let manner = parameters.manner;
    let tls = std::mem::take(&mut parameters.tls);
    let tls = tls.decide(store, encrypted).await?;
    let address = match url.scheme() {
        "redis+unix" => unix(store, url, parameters)?,
        "redis-sentinel" => sentinels(store, url, &hosts, parameters, tls)?,
        "redis-cluster" => cluster(store, url, &parameters, tls)?,
        _ => tcp(store, url, parameters, tls)?,
    };
    let background = store.background()?;
    let wakeups = background.wakeups();
    let settings = Settings {
        prefix: store.prefix.clone(),
        connect_timeout: store.connect_timeout,
        command_timeout: store.command_timeout,
        scripts,
        may_be_down: store.may_be_down,
        assurance: assurance(store, scripts)?,
        shard: None,
        events: background.events(),
        transport: store.transport(),
    };
    let runtime = background.runtime();
    let engine: Result<Arc<dyn Engine>, Failure> = if url.scheme() == "redis-cluster" {
        let seeds = with_ports(&hosts, DEFAULT_PORT);
        let cluster = Cluster::connect(&seeds, address, manner, settings, runtime);
        let cluster = wakeups.shielded(cluster).await;
        cluster.map(|cluster| cluster as Arc<dyn Engine>)
    } else {
        let redis = Redis::connect(address, settings, runtime);
        let redis = wakeups.shielded(redis).await;
        redis.map(|redis| redis as Arc<dyn Engine>)
    };
    let engine = engine.map_err(|failure| {
        if failure.detail.starts_with("ERR DB index") {
            return store.invalid(NO_SUCH_DATABASE);
        }
        // The address names a master that nobody knows.
        if failure.cause == Cause::Unusable {
            return store.invalid(failure.detail);
        }
        Error::from_failure(&masked(store.url).into(), failure)
    })?;
    Ok(Connected {
        engine,
        clock: store.clock(),
        background,
        lapses: true,
        has_peers: true,
    })
}

impl Store<'_> {
    /// What connections are made over.
    fn transport(&self) -> Transport {
        #[cfg(feature = "simulation")]
        if let Some(machine) = &self.machine {
            return Transport::Simulated(machine.clone());
        }
        Transport::System
    }

    /// What leases are counted by.
    fn clock(&self) -> Clock {
        #[cfg(feature = "simulation")]
        if let Some(machine) = &self.machine {
            return Clock::Simulated(machine.clone());
        }
        Clock::Boot
    }
}

/// What it takes for a grant to count.
fn assurance(store: &Store<'_>, scripts: bool) -> Result<Assurance, Error> {
    let assurance = Assurance {
        replicas: match store.durability {
            Durability::Server => None,
            Durability::Replicas { acks, timeout } => Some(Replicas { acks, timeout }),
        },
        delay: store.failover_delay,
    };
    if !scripts && !assurance.is_none() {
        return Err(store.invalid("durability and failover_delay need scripts"));
    }
    Ok(assurance)
}

fn with_ports(hosts: &Named, port: u16) -> Vec<(String, u16)> {
    let hosts = hosts.iter();
    let hosts = hosts.map(|(host, own)| (host.clone(), own.unwrap_or(port)));
    hosts.collect()
}

/// What may follow a question mark.
struct Parameters {
    database: Option<i64>,
    user: Option<String>,
    password: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    scripts: bool,
    /// How messages are sent in a cluster.
    manner: Option<Manner>,
    tls: tls::Parameters,
}

impl Parameters {
    fn of(store: &Store<'_>, url: &Url) -> Result<Self, Error> {
        let mut parameters = Self {
            database: None,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            scripts: true,
            manner: None,
            tls: tls::Parameters::default(),
        };
        let is_watched = url.scheme() == "redis-sentinel";
        let is_cluster = url.scheme() == "redis-cluster";
        // Not the url crate's pairs: those are a web form's, where a `+` stands for a space.
        let pairs = url.query().unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(store, value)?;
            match decoded(store, key)?.as_deref() {
                Some("db") => {
                    parameters.database = Some(database(store, &value.unwrap_or_default())?);
                }
                Some("user") => parameters.user = value,
                Some("pass") => parameters.password = value,
                Some("sentinel_user") if is_watched => parameters.sentinel_user = value,
                Some("sentinel_pass") if is_watched => parameters.sentinel_password = value,
                Some("pubsub") if is_cluster => {
                    parameters.manner = Some(match value.as_deref() {
                        Some("plain") => Manner::Plain,
                        Some("sharded") => Manner::Sharded,
                        Some("both") => Manner::Both,
                        _ => return Err(store.invalid("pubsub is `plain`, `sharded` or `both`")),
                    });
                }
                Some("scripts") => {
                    parameters.scripts = match value.as_deref() {
                        Some("on") => true,
                        Some("off") => false,
                        _ => return Err(store.invalid("scripts is `on` or `off`")),
                    }
                }
                Some(key) if parameters.tls.consider(store, key, value.as_deref())? => {}
                _ => {
                    let known = if is_cluster {
                        "pubsub, tls, ca, cert and key are known"
                    } else if is_watched {
                        "sentinel_user, sentinel_pass, scripts, tls, ca, cert and key are known"
                    } else {
                        "db, user, pass, scripts, ca, cert and key are known"
                    };
                    return Err(store.invalid(format!(
                        "unknown parameter{}; {known}",
                        parameters.shown(url, key)
                    )));
                }
            }
        }
        Ok(parameters)
    }

    /// Which one it is; unless that may be the rest of a password whose `?` or `&` should have been written as `%3F` or `%26`.
    fn shown(&self, url: &Url, key: &str) -> String {
        let is_a_name = key.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'));
        let of_a_password = url.query().is_some_and(|query| query.contains('@'))
            || self.password.is_some()
            || self.sentinel_password.is_some();
        match is_a_name && !key.is_empty() && !of_a_password {
            true => format!(" `{key}`"),
            false => String::new(),
        }
    }

    /// Whether all of the address stands where it belongs.
    fn has_no_address(&self, store: &Store<'_>) -> Result<(), Error> {
        if self.database.is_none() && self.user.is_none() && self.password.is_none() {
            return Ok(());
        }
        let reason = "this address takes database, user and password before the question mark";
        Err(store.invalid(reason))
    }
}

fn tcp(
    store: &Store<'_>,
    url: &Url,
    parameters: Parameters,
    tls: Option<Tls>,
) -> Result<Address, Error> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| store.invalid("no host; try redis://127.0.0.1/"))?;
    // The url crate keeps the brackets of an IPv6 address; sockets do not want them.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    parameters.has_no_address(store)?;
    let database = match url.path().trim_matches('/') {
        "" => 0,
        number => database(store, number)?,
    };
    Ok(Address {
        place: Place::Tcp(host.to_owned(), url.port().unwrap_or(DEFAULT_PORT)),
        database,
        user: decoded(store, url.username())?,
        password: decoded(store, url.password().unwrap_or_default())?,
        tls,
    })
}

/// What comes before the question mark is about the servers, but for the hosts.
fn sentinels(
    store: &Store<'_>,
    url: &Url,
    hosts: &Named,
    parameters: Parameters,
    tls: Option<Tls>,
) -> Result<Address, Error> {
    parameters.has_no_address(store)?;
    let path = url.path();
    // The name goes to whoever answers as a sentinel, and this may be a password with a `/` in it.
    if path.contains('@') {
        let reason = "`@` in a master's name must be written as %40, and `/` in a password as %2F";
        return Err(store.invalid(reason));
    }
    let path = path.strip_prefix('/').unwrap_or(path);
    let (name, number) = path.split_once('/').unwrap_or((path, ""));
    let name = decoded(store, name)?;
    let name = name.ok_or_else(|| {
        store.invalid("no master; try redis-sentinel://h1:26379,h2:26379,h3:26379/mymaster/0")
    })?;
    let database = match number.trim_end_matches('/') {
        "" => 0,
        number => database(store, number)?,
    };
    Ok(Address {
        place: Place::Watched(Sentinels {
            name,
            hosts: with_ports(hosts, SENTINEL_PORT),
            user: parameters.sentinel_user,
            password: parameters.sentinel_password,
        }),
        database,
        user: decoded(store, url.username())?,
        password: decoded(store, url.password().unwrap_or_default())?,
        tls,
    })
}

/// The hosts stand for themselves; a cluster has no other database than the first.
fn cluster(
    store: &Store<'_>,
    url: &Url,
    parameters: &Parameters,
    tls: Option<Tls>,
) -> Result<Address, Error> {
    parameters.has_no_address(store)?;
    if !parameters.scripts {
        return Err(store.invalid("in a cluster locks need scripts"));
    }
    if !matches!(url.path().trim_matches('/'), "" | "0") {
        return Err(store.invalid("a cluster has one database, and that is 0"));
    }
    Ok(Address {
        user: decoded(store, url.username())?,
        password: decoded(store, url.password().unwrap_or_default())?,
        tls,
        ..Address::default()
    })
}

fn unix(store: &Store<'_>, url: &Url, parameters: Parameters) -> Result<Address, Error> {
    if url.host_str().is_some_and(|host| !host.is_empty()) {
        return Err(store.invalid("three slashes, please: redis+unix:///path/to/socket"));
    }
    let path = decoded(store, url.path())?;
    let path = path.ok_or_else(|| store.invalid("no path; try redis+unix:///run/redis.sock"))?;
    let user = decoded(store, url.username())?;
    let password = decoded(store, url.password().unwrap_or_default())?;
    Ok(Address {
        place: Place::Unix(path.into()),
        database: parameters.database.unwrap_or(0),
        user: parameters.user.or(user),
        password: parameters.password.or(password),
        tls: None,
    })
}

fn database(store: &Store<'_>, number: &str) -> Result<i64, Error> {
    // Not shown: where a password was not encoded, this may be a part of it.
    let number: u64 = number
        .parse()
        .map_err(|_| store.invalid("the database must be a number"))?;
    // Servers count them in 32 bits.
    let number = i32::try_from(number).map_err(|_| store.invalid(NO_SUCH_DATABASE))?;
    Ok(i64::from(number))
}

fn decoded(store: &Store<'_>, text: &str) -> Result<Option<String>, Error> {
    let decoded: Cow<'_, str> = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| store.invalid("user, password and path must be UTF-8"))?;
    Ok(Some(decoded.into_owned()).filter(|text| !text.is_empty()))
}
