//! Diagnoses whether a server is fit for locks.
//!
//! This module sends the queries, and [`checks`] judges the replies. Managed services often forbid `INFO` and `CONFIG`;
//! a fact that is unavailable is a warning, not an error.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, FromRedisValue};

mod checks;

pub(super) use self::checks::cluster;
use self::checks::sentinels;
use super::Redis;
use super::info::Info;
use crate::engine::probe::{self, ProbeLock};
use crate::engine::{Diagnostic, Engine, StoreError, StoreErrorKind};
use crate::protocol::{ClientId, Reply};

pub(super) async fn diagnose(
    redis: Arc<Redis>,
    probe: bool,
) -> Result<Vec<Diagnostic>, StoreError> {
    let info = info(&redis).await?;
    let info = info.as_deref().map(Info::new);
    // A sentinel, or one server of a cluster, is part of a system with another address.
    let mut findings = Vec::from_iter(info.as_ref().and_then(checks::server_mode));
    findings.extend(of_server(&redis, info.as_ref()).await?);
    findings.extend(sentinel_findings(&redis).await?);
    findings.push(clock(&redis).await?);
    let probe_lock = new_probe();
    let limit = redis.monitor.command_timeout;
    findings.extend(check_locking(&redis, &probe_lock, limit, probe).await);
    findings.extend(check_listing(&redis, &probe_lock, limit, probe).await);
    Ok(findings)
}

/// Returns the findings about the server alone.
pub(super) async fn server(redis: &Redis) -> Result<Vec<Diagnostic>, StoreError> {
    let info = info(redis).await?;
    of_server(redis, info.as_deref().map(Info::new).as_ref()).await
}

async fn info(redis: &Redis) -> Result<Option<String>, StoreError> {
    query(redis, &redis::cmd("INFO")).await
}

async fn of_server(redis: &Redis, info: Option<&Info<'_>>) -> Result<Vec<Diagnostic>, StoreError> {
    let save = setting(redis, "save").await?;
    let fsync = setting(redis, "appendfsync").await?;
    let mut findings = vec![
        checks::encryption(redis.transport_security),
        checks::version(info),
        checks::role(info),
    ];
    let ttl = setting(redis, "repl-backlog-ttl").await?;
    let failover = checks::failover(info, ttl.as_deref(), &redis.durability);
    findings.extend(failover);
    findings.push(checks::persistence(
        info,
        save.as_deref(),
        fsync.as_deref(),
        &redis.durability,
    ));
    findings.push(checks::eviction(info));
    Ok(findings)
}

/// Checks whether the server's clock is close to ours.
pub(super) async fn clock(redis: &Redis) -> Result<Diagnostic, StoreError> {
    Ok(checks::clock(clock_offset(redis).await?))
}

/// Reports, if sentinels watch the master, whether they can replace it and what becomes of the old master.
async fn sentinel_findings(redis: &Redis) -> Result<Vec<Diagnostic>, StoreError> {
    let Some(seen) = redis.monitor.connector.details().await else {
        return Ok(Vec::new());
    };
    let seen = seen.into_iter();
    let seen: Vec<_> = seen.map(|(addr, seen)| (addr.to_string(), seen)).collect();
    let min_replicas = setting(redis, "min-replicas-to-write").await?;
    let mut findings = vec![sentinels::sentinels(&seen)];
    findings.extend(sentinels::replicas(&seen));
    if redis.durability.replica_acks.is_none() {
        // With replica acknowledgements, a master that is cut off from its replicas grants nothing that counts.
        findings.push(sentinels::split(min_replicas.as_deref()));
    }
    Ok(findings)
}

/// Creates a probe lock with a name that no other client uses.
pub(super) fn new_probe() -> ProbeLock {
    ProbeLock::new(ClientId::new(uuid::Uuid::new_v4().into_bytes()))
}

/// Subscribes to the channel of the probe lock. With `probe`, acquires and releases the lock before.
pub(super) async fn check_locking(
    redis: &Arc<impl Engine>,
    probe_lock: &ProbeLock,
    limit: Duration,
    probe: bool,
) -> Vec<Diagnostic> {
    let taken = async {
        match redis.call(probe_lock.acquire.clone()).await? {
            Reply::Granted { .. } => redis.call(probe_lock.release.clone()).await,
            other => Ok(other),
        }
    };
    let mut findings = Vec::new();
    if probe {
        findings.push(checks::locking(reply_within(limit, taken).await));
    }
    let messages = redis.clone().subscribe(probe_lock.subject.channel());
    let messages = reply_within(limit / 4, messages).await;
    findings.push(checks::subscribing(messages.map(drop)));
    findings
}

/// Lists locks. With `probe`, sets a label before.
pub(super) async fn check_listing(
    redis: &Arc<impl Engine>,
    probe_lock: &ProbeLock,
    limit: Duration,
    probe: bool,
) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    if probe {
        let client: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        let label = Some("doctor".into());
        let label = redis.clone().set_label(client, label, probe::LEASE);
        findings.push(checks::labelling(reply_within(limit / 4, label).await));
    }
    let list = redis.clone().scan(probe_lock.subject.name.to_string(), 0);
    let list = reply_within(limit / 4, list).await;
    findings.push(checks::listing(list.map(drop)));
    findings
}

/// Waits for a reply up to `limit`: if it takes too long, the rest of the report is still worth reading.
#[expect(clippy::disallowed_methods, reason = "engines may wait")]
async fn reply_within<T>(
    limit: Duration,
    reply: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let reply = tokio::time::timeout(limit, reply).await;
    reply.unwrap_or_else(|_| {
        let why = format!("no reply within {limit:?}");
        Err(StoreError::new(StoreErrorKind::TimedOut, why))
    })
}

/// Returns how far our wall clock is ahead of the server's, in milliseconds; `None` if the server does not report its
/// time.
#[expect(clippy::disallowed_methods, reason = "the check compares wall clocks")]
async fn clock_offset(redis: &Redis) -> Result<Option<i64>, StoreError> {
    let before = SystemTime::now();
    let Some((seconds, micros)) = query::<(u64, u64)>(redis, &redis::cmd("TIME")).await? else {
        return Ok(None);
    };
    let took = before.elapsed().unwrap_or_default();
    // The server read its clock at some point in between.
    let ours = before + took / 2;
    let ours = ours.duration_since(UNIX_EPOCH).unwrap_or_default();
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Ok(Some(millis(ours) - millis(theirs)))
}

async fn setting(redis: &Redis, name: &str) -> Result<Option<String>, StoreError> {
    let mut get = redis::cmd("CONFIG");
    get.arg("GET").arg(name);
    let settings: Option<HashMap<String, String>> = query(redis, &get).await?;
    Ok(settings.and_then(|mut settings| settings.remove(name)))
}

/// Returns the reply; `None` if the server refuses the query.
async fn query<T: FromRedisValue>(redis: &Redis, question: &Cmd) -> Result<Option<T>, StoreError> {
    match redis.foreground.connection().send(question).await {
        Ok(reply) => Ok(redis::from_redis_value(reply).ok()),
        Err(failure) if is_refusal(failure.kind) => Ok(None),
        Err(failure) => Err(failure),
    }
}

const fn is_refusal(cause: StoreErrorKind) -> bool {
    match cause {
        StoreErrorKind::Denied
        | StoreErrorKind::PartiallyDenied
        | StoreErrorKind::InvalidName
        | StoreErrorKind::NotReplicated
        | StoreErrorKind::OutOfMemory
        | StoreErrorKind::Unexpected
        | StoreErrorKind::NotReady
        | StoreErrorKind::Unusable
        | StoreErrorKind::WrongKind => true,
        StoreErrorKind::Interrupted
        | StoreErrorKind::TimedOut
        | StoreErrorKind::Tls(_)
        | StoreErrorKind::Unreachable => false,
    }
}
