//! The way from a store's url to its engine.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use url::Url;
use uuid::Uuid;

use self::hosts::Hosts;
use crate::driver::background::Background;
use crate::driver::clock::Clock;
use crate::engine::Engine;
use crate::engine::memory::{Memory, MemoryStore};
use crate::error::Error;
use crate::options::Durability;
use crate::protocol::release_on::ReleaseOn;

mod builder_tls;
mod hosts;
#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
#[path = "connect/no_redis.rs"]
mod redis;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod sqlite;
#[cfg(not(all(feature = "sqlite", target_os = "linux")))]
#[path = "connect/no_sqlite.rs"]
mod sqlite;
#[cfg(feature = "redis")]
mod tls;

pub(crate) use self::builder_tls::BuilderTls;

/// The store and the options that its engine needs.
pub(crate) struct StoreConfig<'a> {
    pub(crate) url: &'a str,
    pub(crate) tls: &'a BuilderTls,
    pub(crate) prefix: Arc<str>,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    /// Whether to connect even if the server cannot be reached yet.
    pub(crate) lazy_connect: bool,
    /// The condition under which a grant counts.
    pub(crate) durability: Durability,
    /// For how long a restarted or promoted server grants no new lock.
    pub(crate) failover_delay: Option<Duration>,
    /// The id of the client that connects.
    pub(crate) client: Uuid,
    /// The event besides lease expiry that ends the client's holds.
    pub(crate) release_on: ReleaseOn,
    /// The simulated machine that the client runs on, if any.
    #[cfg(feature = "simulation")]
    pub(crate) machine: Option<Arc<dyn crate::simulation::Host>>,
}

/// An engine, its clock, and the place where its background work runs.
pub(crate) struct Connected {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Clock,
    pub(crate) background: Background,
    /// Whether kept-alive leases expire if they are not renewed.
    pub(crate) leases_expire: bool,
    /// Whether other libraries may hold the same locks.
    pub(crate) is_shared_with_redisson: bool,
}

impl StoreConfig<'_> {
    pub(crate) async fn connect(&self) -> Result<Connected, Error> {
        let (url, hosts) = match parse_url(self.url) {
            Ok(parsed) => parsed,
            Err(url::ParseError::RelativeUrlWithoutBase) => {
                let try_these = "the url has no scheme; try redis://127.0.0.1:6379/, sqlite:locks.db or memory:";
                return Err(self.invalid(try_these));
            }
            Err(error) => {
                return Err(self.invalid(format!(
                    "{error} (special characters in a password must be percent-encoded)"
                )));
            }
        };
        if url.fragment().is_some() {
            return Err(self.invalid("`#` must be written as %23"));
        }
        let Ok(runtime) = Handle::try_current() else {
            return Err(Error::Unavailable {
                name: masked(self.url).into(),
                detail: "no tokio runtime is running here; `distlock::blocking` has its own".into(),
            });
        };
        if !url.scheme().starts_with("redis") {
            self.reject_replication_options(url.scheme())?;
        }
        match url.scheme() {
            "memory" => {
                self.reject_tls_options()?;
                Ok(self.memory(url.path(), runtime))
            }
            "redis" | "rediss" | "redis+unix" | "redis-sentinel" | "redis-cluster" => {
                redis::connect(self, &url, hosts).await
            }
            "sqlite" => {
                self.reject_tls_options()?;
                sqlite::connect(self, &url).await
            }
            other => Err(self.invalid(format!(
                "unknown scheme `{other}:`; use redis://, rediss://, redis-sentinel://, redis-cluster://, redis+unix:, sqlite: or memory:"
            ))),
        }
    }

    /// Returns a store of the client's own, or the one of this name, which all clients of the process share.
    fn memory(&self, name: &str, runtime: Handle) -> Connected {
        type NamedStores = HashMap<String, (Weak<MemoryStore>, runtime::Id)>;
        static NAMED_STORES: LazyLock<Mutex<NamedStores>> = LazyLock::new(Mutex::default);
        let clock = Clock::Tokio(runtime.clone());
        let fresh = || {
            let clock = clock.clone();
            Arc::new(MemoryStore::new(Arc::new(move || clock.now())))
        };
        let here = runtime.id();
        let (shared, home) = if name.is_empty() {
            (fresh(), here)
        } else {
            let mut named = NAMED_STORES.lock().unwrap_or_else(PoisonError::into_inner);
            named.retain(|_, (store, _)| store.strong_count() > 0);
            let known = named
                .get(name)
                .and_then(|(store, home)| Some((store.upgrade()?, *home)));
            known.unwrap_or_else(|| {
                let store = fresh();
                named.insert(name.to_owned(), (Arc::downgrade(&store), here));
                (store, here)
            })
        };
        Connected {
            engine: Arc::new(Memory::of(shared, self.prefix.clone(), home == here)),
            clock,
            background: Background::Caller(runtime),
            leases_expire: true,
            is_shared_with_redisson: false,
        }
    }

    /// Returns a thread for work that must go on while the caller's runtime is busy.
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    fn background(&self) -> Result<Background, Error> {
        #[cfg(feature = "simulation")]
        if self.machine.is_some() {
            return Ok(Background::Simulated(Handle::current()));
        }
        Background::thread().map_err(|error| Error::Unavailable {
            name: masked(self.url).into(),
            detail: error.to_string(),
        })
    }

    /// Rejects options without an effect on this store: the caller would rely on them.
    fn reject_replication_options(&self, scheme: &str) -> Result<(), Error> {
        let option = match (self.durability, self.failover_delay) {
            (Durability::Server, None) => return Ok(()),
            (Durability::Server, Some(_)) => "failover_delay",
            (Durability::Replicas { .. }, _) => "durability",
        };
        let reason = format!("not supported for `{scheme}:`, which has no failover");
        Err(Error::invalid_option(option, reason))
    }

    fn invalid(&self, reason: impl Into<String>) -> Error {
        Error::InvalidUrl {
            url: masked(self.url),
            reason: reason.into(),
        }
    }
}

/// The hosts of a url, each with its port, if it has one.
type HostPorts = Vec<(String, Option<u16>)>;

/// Parses a url, and its list of hosts for a scheme that allows several.
fn parse_url(url: &str) -> Result<(Url, HostPorts), url::ParseError> {
    if is_multi_host(url) {
        let Hosts { url, all, .. } = Hosts::parse(url)?;
        return Ok((url, all));
    }
    Ok((Url::parse(url)?, Vec::new()))
}

fn is_multi_host(url: &str) -> bool {
    MULTI_HOST_SCHEMES.iter().any(|scheme| {
        let begin = url.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    })
}

const SCHEMES: [&str; 7] = [
    "memory",
    "redis",
    "redis+unix",
    "redis-cluster",
    "redis-sentinel",
    "rediss",
    "sqlite",
];

/// Schemes whose path is the number of a database.
const DATABASE_SCHEMES: [&str; 3] = ["redis", "rediss", "redis-cluster"];

const MULTI_HOST_SCHEMES: [&str; 2] = ["redis-cluster://", "redis-sentinel://"];

/// Returns the url without anything that may be a password, also if it is malformed.
pub(crate) fn masked(url: &str) -> String {
    let scheme = url.split(':').next().filter(|_| url.contains(':'));
    let scheme = scheme.filter(|scheme| {
        scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-".contains(c))
    });
    let nothing = || scheme.map_or_else(|| "***".to_owned(), |scheme| format!("{scheme}:***"));
    let Ok((parsed, _)) = parse_url(url) else {
        return nothing();
    };
    // In a url of an unknown scheme every part may be a password.
    if !SCHEMES.contains(&parsed.scheme()) {
        return nothing();
    }
    // In place of the database number there may be the rest of a password, if the host was forgotten.
    let is_number = |path: &str| path.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'/'));
    if DATABASE_SCHEMES.contains(&parsed.scheme()) && !is_number(parsed.path()) {
        return nothing();
    }
    // An unencoded `/`, `?` or `#` in a password ends the authority early, so that the rest of the password follows it.
    let rest_of_url = url
        .split_once("://")
        .map_or(url, |(_, rest_of_url)| rest_of_url);
    let authority = rest_of_url
        .split(['/', '?', '#'])
        .next()
        .unwrap_or(rest_of_url);
    let rest = &rest_of_url[authority.len()..];
    if rest.contains('@') || (authority.contains('@') && !parsed.has_host()) {
        return nothing();
    }
    let credentials = if authority.contains('@') { "***@" } else { "" };
    let slashes = if url.contains("://") { "//" } else { "" };
    let port = parsed
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let host = match Hosts::parse(url) {
        Ok(hosts) if is_multi_host(url) => hosts.text.to_owned(),
        _ => format!("{}{port}", parsed.host_str().unwrap_or_default()),
    };
    let query = if parsed.query().is_some() { "?***" } else { "" };
    format!(
        "{}:{slashes}{credentials}{host}{}{query}",
        parsed.scheme(),
        parsed.path()
    )
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn a_password_is_masked_in_every_position() {
        for (url, shown) in [
            ("redis://u:secret@h:1/0", "redis://***@h:1/0"),
            ("redis://:secret@h", "redis://***@h"),
            ("redis://u:se@cret@h", "redis://***@h"),
            ("redis:secret@h", "redis:***"),
            ("redis://u:1/secret@h/0", "redis:***"),
            ("redis://u:1?secret@h/0", "redis:***"),
            ("redis://u:p@se/cret@h/", "redis:***"),
            ("redis://u:p@se?cret@h/", "redis:***"),
            ("redis://u:p@se#cret@h/", "redis:***"),
            ("redis://u:secret", "redis:***"),
            ("secret@h", "***"),
            ("secret", "***"),
            ("redis+unix:///s?db=1&pass=secret", "redis+unix:///s?***"),
            ("redis://h/0", "redis://h/0"),
            (
                "redis-sentinel://u:secret@h:1,[::1]:2/m/0?sentinel_pass=secret",
                "redis-sentinel://***@h:1,[::1]:2/m/0?***",
            ),
            ("redis-sentinel://h,i/m", "redis-sentinel://h,i/m"),
            (
                "redis-sentinel://u:se,cret@h,i/m",
                "redis-sentinel://***@h,i/m",
            ),
            (
                "redis-sentinel://u:1,secret@x@h,i/m",
                "redis-sentinel://***@h,i/m",
            ),
            ("redis-sentinel://u:secret,h:1/m", "redis-sentinel:***"),
            ("redis-sentinel://u:1/se,cret@h,i/m", "redis-sentinel:***"),
            ("redis-sentinel://u:p@se?cret@h,i/m", "redis-sentinel:***"),
            ("redis-sentinel:u:secret@h,i/m", "redis-sentinel:***"),
            ("redis-sentinel://u:/secret@h/0", "redis-sentinel:***"),
            // The url crate treats `\` as `/` in some schemes.
            (r"https://u:1\secret@h/0", "https:***"),
            (r"https:\\u:1\secret@h/0", "https:***"),
            ("mongodb:secret", "mongodb:***"),
            ("http://u:1/secret", "http:***"),
            ("redis://u:1/secret", "redis:***"),
            ("redis-cluster://u:1/secret", "redis-cluster:***"),
            ("redis+unix:///run/redis@1.sock", "redis+unix:***"),
            ("sqlite:locks.db", "sqlite:locks.db"),
            ("memory:here", "memory:here"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }
}
