//! Looks whether a server is fit for locks.
//!
//! Asks here, judges in [`judge`]. Servers for rent often forbid `INFO` and `CONFIG`; what nobody can
//! tell is a warning, not an error.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, FromRedisValue};

mod judge;

pub(super) use self::judge::cluster;
use self::judge::sentinels;
use super::Redis;
use super::info::Info;
use crate::engine::trial::{self, Trial};
use crate::engine::{Cause, Engine, Failure, Finding};
use crate::protocol::{ClientId, Reply};

pub(super) async fn examine(redis: Arc<Redis>, probe: bool) -> Result<Vec<Finding>, Failure> {
    let info = info(&redis).await?;
    let info = info.as_deref().map(Info::new);
    // Whether it is a part of something that has another address.
    let mut findings = Vec::from_iter(info.as_ref().and_then(judge::part_of));
    findings.extend(of_server(&redis, info.as_ref()).await?);
    findings.extend(watched(&redis).await?);
    findings.push(clock(&redis).await?);
    let trial = trial();
    let limit = redis.overhear.command_timeout;
    findings.extend(locking(&redis, &trial, limit, probe).await);
    findings.extend(looking(&redis, &trial, limit, probe).await);
    Ok(findings)
}

/// What is to be known of the server alone.
pub(super) async fn server(redis: &Redis) -> Result<Vec<Finding>, Failure> {
    let info = info(redis).await?;
    of_server(redis, info.as_deref().map(Info::new).as_ref()).await
}

async fn info(redis: &Redis) -> Result<Option<String>, Failure> {
    ask(redis, &redis::cmd("INFO")).await
}

async fn of_server(redis: &Redis, info: Option<&Info<'_>>) -> Result<Vec<Finding>, Failure> {
    let save = setting(redis, "save").await?;
    let fsync = setting(redis, "appendfsync").await?;
    let mut findings = vec![
        judge::encryption(redis.privacy),
        judge::version(info),
        judge::role(info),
    ];
    let ttl = setting(redis, "repl-backlog-ttl").await?;
    let failover = judge::failover(info, ttl.as_deref(), &redis.assurance);
    findings.extend(failover);
    findings.push(judge::persistence(
        info,
        save.as_deref(),
        fsync.as_deref(),
        &redis.assurance,
    ));
    findings.push(judge::eviction(info));
    Ok(findings)
}

/// Whether its clock is near ours.
pub(super) async fn clock(redis: &Redis) -> Result<Finding, Failure> {
    Ok(judge::clock(clock_offset(redis).await?))
}

/// Where sentinels watch the master: whether they can replace it, and what becomes of the old one.
async fn watched(redis: &Redis) -> Result<Vec<Finding>, Failure> {
    let Some(seen) = redis.overhear.door.details().await else {
        return Ok(Vec::new());
    };
    let seen = seen.into_iter();
    let seen: Vec<_> = seen.map(|(site, seen)| (site.to_string(), seen)).collect();
    let min_replicas = setting(redis, "min-replicas-to-write").await?;
    let mut findings = vec![sentinels::sentinels(&seen)];
    findings.extend(sentinels::replicas(&seen));
    if redis.assurance.replicas.is_none() {
        // One that is cut off from those who acknowledge grants nothing that counts.
        findings.push(sentinels::split(min_replicas.as_deref()));
    }
    Ok(findings)
}

/// A lock that nobody else has the name of.
pub(super) fn trial() -> Trial {
    Trial::new(ClientId::new(uuid::Uuid::new_v4().into_bytes()))
}

/// Subscribes to its channel; as a probe, acquires and releases it before.
pub(super) async fn locking(
    redis: &Arc<impl Engine>,
    trial: &Trial,
    limit: Duration,
    probe: bool,
) -> Vec<Finding> {
    let taken = async {
        match redis.call(trial.acquire.clone()).await? {
            Reply::Granted { .. } => redis.call(trial.release.clone()).await,
            other => Ok(other),
        }
    };
    let mut findings = Vec::new();
    if probe {
        findings.push(judge::locking(answered(limit, taken).await));
    }
    let messages = redis.clone().listen(trial.subject.channel());
    let messages = answered(limit / 4, messages).await;
    findings.push(judge::listening(messages.map(drop)));
    findings
}

/// Lists locks; as a probe, sets a label before.
pub(super) async fn looking(
    redis: &Arc<impl Engine>,
    trial: &Trial,
    limit: Duration,
    probe: bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if probe {
        let client: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        let label = Some("doctor".into());
        let label = redis.clone().announce(client, label, trial::LEASE);
        findings.push(judge::labelling(answered(limit / 4, label).await));
    }
    let list = redis.clone().find(trial.subject.name.to_string(), 0);
    let list = answered(limit / 4, list).await;
    findings.push(judge::listing(list.map(drop)));
    findings
}

/// What takes too long is given up: the rest of the report is still worth reading.
#[expect(clippy::disallowed_methods, reason = "engines may wait")]
async fn answered<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let answer = tokio::time::timeout(limit, answer).await;
    answer.unwrap_or_else(|_| {
        let why = format!("no answer within {limit:?}");
        Err(Failure::new(Cause::TimedOut, why))
    })
}

/// How far our wall clock is ahead of the server's, in milliseconds; none if it does not say.
#[expect(clippy::disallowed_methods, reason = "what is asked is the wall clock")]
async fn clock_offset(redis: &Redis) -> Result<Option<i64>, Failure> {
    let before = SystemTime::now();
    let Some((seconds, micros)) = ask::<(u64, u64)>(redis, &redis::cmd("TIME")).await? else {
        return Ok(None);
    };
    let took = before.elapsed().unwrap_or_default();
    // The server looked at its clock somewhere between.
    let ours = before + took / 2;
    let ours = ours.duration_since(UNIX_EPOCH).unwrap_or_default();
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Ok(Some(millis(ours) - millis(theirs)))
}

async fn setting(redis: &Redis, name: &str) -> Result<Option<String>, Failure> {
    let mut get = redis::cmd("CONFIG");
    get.arg("GET").arg(name);
    let settings: Option<HashMap<String, String>> = ask(redis, &get).await?;
    Ok(settings.and_then(|mut settings| settings.remove(name)))
}

/// The answer; none if the server does not give it to us.
async fn ask<T: FromRedisValue>(redis: &Redis, question: &Cmd) -> Result<Option<T>, Failure> {
    match redis.waited_for.connection().send(question).await {
        Ok(answer) => Ok(redis::from_redis_value(answer).ok()),
        Err(failure) if refuses(failure.cause) => Ok(None),
        Err(failure) => Err(failure),
    }
}

const fn refuses(cause: Cause) -> bool {
    match cause {
        Cause::Denied
        | Cause::DeniedInPart
        | Cause::NoName
        | Cause::NotReplicated
        | Cause::OutOfMemory
        | Cause::Unexpected
        | Cause::Unready
        | Cause::Unusable
        | Cause::WrongKind => true,
        Cause::Interrupted | Cause::TimedOut | Cause::Tls(_) | Cause::Unreachable => false,
    }
}
