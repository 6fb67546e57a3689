//! What a server's answers mean for locks. Pure: answers in, findings out.

use std::time::Duration;

pub(crate) mod cluster;
mod failover;
pub(super) mod sentinels;

pub(super) use self::failover::failover;

use crate::engine::redis::assurance::Assurance;
use crate::engine::redis::door::Privacy;
use crate::engine::redis::failure::said;
use crate::engine::redis::info::Info;
use crate::engine::{Cause, Failure, Finding};
use crate::protocol::Reply;

/// From here on a `since` in a label looks wrong to people.
const FAR_APART: Duration = Duration::from_secs(5);

pub(super) fn encryption(privacy: Privacy) -> Finding {
    let what = "encryption";
    match privacy {
        Privacy::Encrypted => Finding::ok(what, "TLS, with a server that has shown who it is"),
        Privacy::Local => Finding::ok(what, "none, and nothing leaves this machine"),
        Privacy::Open => Finding::warn(
            what,
            "none: whoever is on the way can read the password, and take and free locks",
            "use rediss:// where the server speaks TLS, or see that the network is your own",
        ),
    }
}

pub(super) fn version(info: Option<&Info<'_>>) -> Finding {
    let what = "version";
    let valkey = info.and_then(|info| info.get("valkey_version"));
    if let Some(version) = valkey {
        return Finding::ok(what, format!("Valkey {version}"));
    }
    let Some(version) = info.and_then(|info| info.get("redis_version")) else {
        return unknown(what, "allow INFO to this user");
    };
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) < (6, 2) {
        let advice = "locks are tested with Redis 6.2 and newer, and Valkey";
        return Finding::warn(what, format!("Redis {version}"), advice);
    }
    Finding::ok(what, format!("Redis {version}"))
}

/// Locks are not at a sentinel, and not all of them at one server of a cluster.
pub(super) fn part_of(info: &Info<'_>) -> Option<Finding> {
    let mode = info.get("redis_mode").or_else(|| info.get("server_mode"));
    let (found, advice) = match mode? {
        "sentinel" => (
            "a sentinel, which knows where locks are and has none",
            "use redis-sentinel://HOST:PORT/MASTER, where MASTER is what it calls the master",
        ),
        "cluster" => (
            "one server of a cluster, which has its own slots only",
            "use redis-cluster://HOST:PORT",
        ),
        _ => return None,
    };
    Some(Finding::fail("address", found, advice))
}

pub(super) fn role(info: Option<&Info<'_>>) -> Finding {
    let what = "role";
    let Some(role) = info.and_then(|info| info.get("role")) else {
        return unknown(what, "allow INFO to this user");
    };
    let field = |name| info.and_then(|info| info.get(name)).unwrap_or("?");
    if role != "master" {
        let (host, port) = (field("master_host"), field("master_port"));
        let link = field("master_link_status");
        return Finding::fail(
            what,
            format!("a replica of {host}:{port}, whose link is {link}"),
            format!("locks can only be taken at the primary: use redis://{host}:{port}/"),
        );
    }
    match field("connected_slaves") {
        "0" | "?" => Finding::ok(what, "primary, without replicas"),
        replicas => Finding::ok(what, format!("primary with {replicas} replica(s)")),
    }
}

pub(super) fn persistence(
    info: Option<&Info<'_>>,
    save: Option<&str>,
    fsync: Option<&str>,
    assurance: &Assurance,
) -> Finding {
    let what = "persistence";
    let Some(aof) = info.and_then(|info| info.get("aof_enabled")) else {
        return unknown(what, "allow INFO to this user");
    };
    if aof == "1" {
        return match fsync {
            Some("always") => Finding::ok(what, "appendonly, written before each answer"),
            Some("no") => Finding::warn(
                what,
                "appendonly, written when the system likes (appendfsync no)",
                "set appendfsync everysec, or always",
            ),
            _ => Finding::ok(what, "appendonly; a crash forgets a second at most"),
        };
    }
    let advice = match assurance.delay {
        Some(_) => "set appendonly yes: who holds a lock loses it at a restart",
        None => {
            "set appendonly yes, or a failover_delay: what a restart forgets may be granted twice"
        }
    };
    match save {
        Some("") => Finding::warn(what, "none: a restart forgets every lock", advice),
        Some(rules) => Finding::warn(
            what,
            format!("snapshots only (save {rules}): a crash forgets what came after the last"),
            advice,
        ),
        None => Finding::warn(what, "no appendonly file", advice),
    }
}

/// Every lock has a time to live, so every policy but `noeviction` may evict it.
pub(super) fn eviction(info: Option<&Info<'_>>) -> Finding {
    let what = "eviction";
    let Some(policy) = info.and_then(|info| info.get("maxmemory_policy")) else {
        return unknown(what, "see that maxmemory-policy is noeviction");
    };
    if policy == "noeviction" {
        return Finding::ok(what, policy);
    }
    let advice = "set maxmemory-policy noeviction";
    let limit = info.and_then(|info| info.get("maxmemory"));
    match limit {
        Some("0") => Finding::warn(what, format!("{policy}, though no limit is set"), advice),
        _ => Finding::fail(what, format!("{policy}: held locks may be evicted"), advice),
    }
}

pub(super) fn locking(tried: Result<Reply, Failure>) -> Finding {
    let what = "locking";
    match tried {
        // Nobody else has its name.
        Ok(Reply::Busy { ttl }) => Finding::warn(
            what,
            format!(
                "nothing new for another {:.0?}: it was started or promoted just now",
                ttl.unwrap_or_default()
            ),
            "wait for the end of failover_delay",
        ),
        Ok(_) => Finding::ok(what, "a lock was taken and given back"),
        Err(failure) if is_about_names(&failure) => Finding::warn(
            what,
            format!("not tried: {}", said(&failure)),
            "allow the keys `distlock_doctor:*` and their channels to have it tried",
        ),
        Err(failure) => Finding::fail(what, said(&failure), remedy(failure.cause)),
    }
}

pub(super) fn listening(tried: Result<(), Failure>) -> Finding {
    let what = "messages";
    match tried {
        Ok(()) => Finding::ok(what, "releases are heard of at once"),
        Err(failure) if is_about_names(&failure) => Finding::warn(
            what,
            format!("not tried: {}", said(&failure)),
            "allow the channels `&redisson_lock__channel:{distlock_doctor:*` to have it tried",
        ),
        Err(failure) => Finding::warn(
            what,
            format!("{}: waiters ask every two seconds instead", failure.detail),
            "allow +subscribe and the channels of your locks, such as `&redisson_lock__channel:*`",
        ),
    }
}

pub(super) fn labelling(tried: Result<(), Failure>) -> Finding {
    let what = "labels";
    match tried {
        Ok(()) => Finding::ok(what, "holders can say who they are"),
        Err(failure) => Finding::warn(
            what,
            failure.detail,
            "allow +set and the keys `distlock_client:*` to see who holds a lock",
        ),
    }
}

pub(super) fn listing(tried: Result<(), Failure>) -> Finding {
    let what = "listing";
    match tried {
        Ok(()) => Finding::ok(what, "locks can be listed"),
        Err(failure) => Finding::warn(what, failure.detail, "allow +scan to list locks"),
    }
}

/// Only a hint: leases are counted by the server, and validity by each holder's own monotonic clock.
pub(super) fn clock(ahead_millis: Option<i64>) -> Finding {
    let what = "clock";
    let Some(ahead) = ahead_millis else {
        return unknown(what, "allow +time, which locks need");
    };
    let apart = Duration::from_millis(ahead.unsigned_abs());
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    let found = format!("ours is {} ms {side} the server's", ahead.unsigned_abs());
    if apart < FAR_APART {
        return Finding::ok(what, found);
    }
    let advice = "locks do not depend on it, but times in labels look wrong: set both clocks";
    Finding::warn(what, found, advice)
}

fn unknown(what: &str, advice: &str) -> Finding {
    Finding::warn(what, "the server does not say", advice)
}

/// Whether the user may do it, but not under the name it was tried with.
fn is_about_names(failure: &Failure) -> bool {
    let denied = matches!(failure.cause, Cause::Denied | Cause::DeniedInPart);
    let about = |word| failure.detail.contains(word);
    denied && (about(" key") || about(" channel"))
}

const fn remedy(cause: Cause) -> &'static str {
    match cause {
        Cause::Denied | Cause::DeniedInPart => {
            "the server's `ACL LOG` says what is missing, docs/connecting.md what locks need"
        }
        Cause::NotReplicated => "see that as many replicas follow as are to acknowledge",
        Cause::OutOfMemory => "raise maxmemory, or free some",
        Cause::Unready => "wait until it is ready, or use the primary",
        Cause::Tls(_) => "see to the certificates",
        Cause::Interrupted | Cause::TimedOut | Cause::Unreachable => {
            "see whether the server is overloaded or restarting"
        }
        Cause::NoName | Cause::Unexpected | Cause::Unusable | Cause::WrongKind => {
            "see that this is a Redis server that allows scripts"
        }
    }
}

#[cfg(test)]
mod tests;
