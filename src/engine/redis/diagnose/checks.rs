//! Findings about a server for use with locks. Pure: replies of the server in, findings out.

use std::time::Duration;

pub(crate) mod cluster;
mod failover;
pub(super) mod sentinels;

pub(super) use self::failover::failover;

use crate::engine::redis::connector::TransportSecurity;
use crate::engine::redis::durability::DurabilityPolicy;
use crate::engine::redis::failure::without_hint;
use crate::engine::redis::info::Info;
use crate::engine::{Diagnostic, StoreError, StoreErrorKind};
use crate::protocol::Reply;

/// Clock offset above which a `since` time in a label looks wrong to people.
const MAX_CLOCK_OFFSET: Duration = Duration::from_secs(5);

pub(super) fn encryption(transport_security: TransportSecurity) -> Diagnostic {
    let what = "encryption";
    match transport_security {
        TransportSecurity::Encrypted => {
            Diagnostic::ok(what, "TLS; the server's certificate was verified")
        }
        TransportSecurity::Local => {
            Diagnostic::ok(what, "none; the connection stays on this machine")
        }
        TransportSecurity::Plaintext => Diagnostic::warn(
            what,
            "none: anyone on the network path can read the password, and acquire and release locks",
            "use rediss:// if the server supports TLS, or make sure that the network is trusted",
        ),
    }
}

pub(super) fn version(info: Option<&Info<'_>>) -> Diagnostic {
    let what = "version";
    let valkey = info.and_then(|info| info.get("valkey_version"));
    if let Some(version) = valkey {
        return Diagnostic::ok(what, format!("Valkey {version}"));
    }
    let Some(version) = info.and_then(|info| info.get("redis_version")) else {
        return unknown(what, "allow INFO to this user");
    };
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) < (6, 2) {
        let advice = "use Redis 6.2 or newer, or Valkey: older servers are not tested";
        return Diagnostic::warn(what, format!("Redis {version}"), advice);
    }
    Diagnostic::ok(what, format!("Redis {version}"))
}

/// Returns a failure for an address that cannot serve all locks: a sentinel has none, one server of a cluster only some.
pub(super) fn server_mode(info: &Info<'_>) -> Option<Diagnostic> {
    let mode = info.get("redis_mode").or_else(|| info.get("server_mode"));
    let (found, advice) = match mode? {
        "sentinel" => (
            "a sentinel, which knows the address of the master and stores no locks",
            "use redis-sentinel://HOST:PORT/MASTER, where MASTER is its name for the master",
        ),
        "cluster" => (
            "one server of a cluster, which serves only its own slots",
            "use redis-cluster://HOST:PORT",
        ),
        _ => return None,
    };
    Some(Diagnostic::fail("address", found, advice))
}

pub(super) fn role(info: Option<&Info<'_>>) -> Diagnostic {
    let what = "role";
    let Some(role) = info.and_then(|info| info.get("role")) else {
        return unknown(what, "allow INFO to this user");
    };
    let field = |name| info.and_then(|info| info.get(name)).unwrap_or("?");
    if role != "master" {
        let (host, port) = (field("master_host"), field("master_port"));
        let link = field("master_link_status");
        return Diagnostic::fail(
            what,
            format!("a replica of {host}:{port}, whose link is {link}"),
            format!("locks can be acquired at the primary only: use redis://{host}:{port}/"),
        );
    }
    match field("connected_slaves") {
        "0" | "?" => Diagnostic::ok(what, "primary, without replicas"),
        replicas => Diagnostic::ok(what, format!("primary with {replicas} replica(s)")),
    }
}

pub(super) fn persistence(
    info: Option<&Info<'_>>,
    save: Option<&str>,
    fsync: Option<&str>,
    durability: &DurabilityPolicy,
) -> Diagnostic {
    let what = "persistence";
    let Some(aof) = info.and_then(|info| info.get("aof_enabled")) else {
        return unknown(what, "allow INFO to this user");
    };
    if aof == "1" {
        return match fsync {
            Some("always") => Diagnostic::ok(
                what,
                "appendonly; each write is on disk before its reply (appendfsync always)",
            ),
            Some("no") => Diagnostic::warn(
                what,
                "appendonly; the operating system decides when to write to disk (appendfsync no)",
                "set appendfsync everysec, or always",
            ),
            _ => Diagnostic::ok(
                what,
                "appendonly; a crash loses one second of writes at most",
            ),
        };
    }
    let advice = match durability.failover_delay {
        Some(_) => "set appendonly yes: without it, every holder loses its lock at a restart",
        None => "set appendonly yes, or a failover_delay: a forgotten lock may be granted twice",
    };
    match save {
        Some("") => Diagnostic::warn(what, "none: a restart forgets every lock", advice),
        Some(rules) => Diagnostic::warn(
            what,
            format!(
                "snapshots only (save {rules}): a crash loses all writes since the last snapshot"
            ),
            advice,
        ),
        None => Diagnostic::warn(what, "no appendonly file", advice),
    }
}

/// Checks the eviction policy. Every lock has a TTL, so that every policy but `noeviction` may evict it.
pub(super) fn eviction(info: Option<&Info<'_>>) -> Diagnostic {
    let what = "eviction";
    let Some(policy) = info.and_then(|info| info.get("maxmemory_policy")) else {
        return unknown(what, "check that maxmemory-policy is noeviction");
    };
    if policy == "noeviction" {
        return Diagnostic::ok(what, policy);
    }
    let advice = "set maxmemory-policy noeviction";
    let limit = info.and_then(|info| info.get("maxmemory"));
    match limit {
        Some("0") => Diagnostic::warn(
            what,
            format!("{policy}, but no maxmemory limit is set"),
            advice,
        ),
        _ => Diagnostic::fail(what, format!("{policy}: held locks may be evicted"), advice),
    }
}

pub(super) fn locking(tried: Result<Reply, StoreError>) -> Diagnostic {
    let what = "locking";
    match tried {
        // No other client uses the name of the probe lock, so that the failover delay is the only reason.
        Ok(Reply::Busy { ttl }) => Diagnostic::warn(
            what,
            format!(
                "no new locks for another {:.0?}: the server was started or promoted recently",
                ttl.unwrap_or_default()
            ),
            "wait for the end of failover_delay",
        ),
        Ok(_) => Diagnostic::ok(what, "a lock was acquired and released"),
        Err(failure) if is_about_names(&failure) => Diagnostic::warn(
            what,
            format!("not tested: {}", without_hint(&failure)),
            "allow this user the keys `distlock_doctor:*` and their channels, to test this",
        ),
        Err(failure) => Diagnostic::fail(what, without_hint(&failure), advice_for(failure.kind)),
    }
}

pub(super) fn subscribing(tried: Result<(), StoreError>) -> Diagnostic {
    let what = "messages";
    match tried {
        Ok(()) => Diagnostic::ok(what, "waiters are notified of releases at once"),
        Err(failure) if is_about_names(&failure) => Diagnostic::warn(
            what,
            format!("not tested: {}", without_hint(&failure)),
            "allow this user the channels `&redisson_lock__channel:{distlock_doctor:*`, to test this",
        ),
        Err(failure) if failure.is_transient() => Diagnostic::warn(
            what,
            format!("{}: waiters poll until they can subscribe", failure.detail),
            "check that the server accepts more connections, and replies in time",
        ),
        Err(failure) => Diagnostic::warn(
            what,
            format!(
                "{}: a call that waits for a busy lock fails",
                failure.detail
            ),
            "allow +subscribe and the channels of your locks, such as `&redisson_lock__channel:*`",
        ),
    }
}

pub(super) fn labelling(tried: Result<(), StoreError>) -> Diagnostic {
    let what = "labels";
    match tried {
        Ok(()) => Diagnostic::ok(what, "holders can set their labels"),
        Err(failure) => Diagnostic::warn(
            what,
            failure.detail,
            "allow +set and the keys `distlock_client:*`, so that listings name the holders",
        ),
    }
}

pub(super) fn listing(tried: Result<(), StoreError>) -> Diagnostic {
    let what = "listing";
    match tried {
        Ok(()) => Diagnostic::ok(what, "locks can be listed"),
        Err(failure) => Diagnostic::warn(what, failure.detail, "allow +scan to list locks"),
    }
}

/// Checks the clock offset. This is only a hint: the server counts down leases, and each holder measures its validity by its
/// own monotonic clock.
pub(super) fn clock(ahead_millis: Option<i64>) -> Diagnostic {
    let what = "clock";
    let Some(ahead) = ahead_millis else {
        return unknown(what, "allow +time: locks need it");
    };
    let offset = Duration::from_millis(ahead.unsigned_abs());
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    let found = format!(
        "the local clock is {} ms {side} the server's",
        ahead.unsigned_abs()
    );
    if offset < MAX_CLOCK_OFFSET {
        return Diagnostic::ok(what, found);
    }
    let advice =
        "locks do not depend on it, but times in labels look wrong: synchronize both clocks";
    Diagnostic::warn(what, found, advice)
}

fn unknown(what: &str, advice: &str) -> Diagnostic {
    Diagnostic::warn(what, "unknown: the server does not report it", advice)
}

/// Returns whether the user may run the command, but not on the names that the probe used.
fn is_about_names(failure: &StoreError) -> bool {
    let denied = matches!(
        failure.kind,
        StoreErrorKind::Denied | StoreErrorKind::PartiallyDenied
    );
    let about = |word| failure.detail.contains(word);
    denied && (about(" key") || about(" channel"))
}

const fn advice_for(cause: StoreErrorKind) -> &'static str {
    match cause {
        StoreErrorKind::Denied | StoreErrorKind::PartiallyDenied => {
            "`ACL LOG` on the server shows the missing right; docs/connecting.md lists all of them"
        }
        StoreErrorKind::NotReplicated => {
            "check that as many replicas follow as have to acknowledge"
        }
        StoreErrorKind::OutOfMemory => "raise maxmemory, or free memory",
        StoreErrorKind::NotReady => "wait until the server is ready, or use the primary",
        StoreErrorKind::Tls(_) => "check the certificates",
        StoreErrorKind::Interrupted | StoreErrorKind::TimedOut | StoreErrorKind::Unreachable => {
            "check whether the server is overloaded or restarting"
        }
        StoreErrorKind::InvalidName
        | StoreErrorKind::Unexpected
        | StoreErrorKind::Unusable
        | StoreErrorKind::WrongKind => "check that this is a Redis server that allows scripts",
    }
}

#[cfg(test)]
mod tests;
