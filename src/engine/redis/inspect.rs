//! Inspection of a lock: one call that reads, and one more for each further page of a very large lock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, Pipeline, Value};
use tokio::time::Instant;

use super::format::{self, MOST_OWNERS};
use super::scripts::{InspectScope, Inspection, ScriptCall};
use super::{Redis, failure};
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::{
    Action, FencingToken, HolderSnapshot, Kind, LockSnapshot, OwnerId, Request, Subject,
};

type InspectResult = Result<Option<(Kind, LockSnapshot)>, StoreError>;

/// How long a denial is remembered: an administrator may allow more.
const DENIED_FOR: Duration = Duration::from_secs(60);

/// The sets of keys that the server has denied recently, so that each is tried once and not for every lock: the
/// server's ACL LOG records every denied call.
#[derive(Debug, Default)]
pub(super) struct DeniedScopes(Mutex<Vec<(InspectScope, Instant)>>);

impl DeniedScopes {
    #[expect(clippy::disallowed_methods, reason = "engines may read the clock")]
    fn add(&self, scope: InspectScope) {
        let mut denied = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !denied.iter().any(|(known, _)| *known == scope) {
            denied.push((scope, Instant::now()));
        }
    }

    /// Returns the sets that may be tried: all of them, if none is left.
    fn allowed(&self) -> Vec<InspectScope> {
        let mut denied = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        denied.retain(|(_, since)| since.elapsed() < DENIED_FOR);
        let is_denied = |scope| denied.iter().any(|(known, _)| *known == scope);
        let others = InspectScope::EACH.into_iter();
        let others: Vec<_> = others.filter(|scope| !is_denied(*scope)).collect();
        match others.is_empty() {
            true => InspectScope::EACH.into(),
            false => others,
        }
    }
}

/// Returns the kind and the holders of the lock, if it is held.
pub(super) async fn inspect(redis: &Redis, name: Arc<str>) -> InspectResult {
    if redis.optimistic.is_some() {
        return without_scripts(redis, &name).await;
    }
    let request = Subject::new(Kind::Mutex, name).request(Action::Inspect);
    // A user may be allowed to read the lock, but not all of its auxiliary keys.
    let mut seen = Err(not_a_lock());
    for scope in redis.denied_scopes.allowed() {
        let mut found = match page(redis, &request, scope, None).await {
            Err(failure) if failure.kind == StoreErrorKind::Denied => {
                redis.denied_scopes.add(scope);
                seen = seen.or(Err(failure));
                continue;
            }
            found => found?,
        };
        while let Some(cursor) = found.next().map(str::to_owned) {
            found.add(page(redis, &request, scope, Some(&cursor)).await?);
        }
        let complete = found.is_complete(scope);
        seen = Ok(found.into_lock());
        if complete {
            break;
        }
    }
    seen
}

async fn page(
    redis: &Redis,
    request: &Request,
    scope: InspectScope,
    cursor: Option<&str>,
) -> Result<Inspection, StoreError> {
    let call = ScriptCall::inspect(request, &redis.keys, scope, cursor);
    let ran = redis.foreground.connection().run(&call).await?;
    Inspection::read(ran.executed()?.value)
}

/// Inspects by plain commands, sizes before contents, the kinds that need no scripts.
async fn without_scripts(redis: &Redis, name: &str) -> InspectResult {
    let key = redis.keys.lock(name).to_string();
    let connection = redis.foreground.connection();
    let mut sizes = Pipeline::new();
    sizes.cmd("TYPE").arg(&key);
    sizes.cmd("PTTL").arg(&key);
    let counter = redis.keys.token(name).to_string();
    sizes
        .cmd("GETRANGE")
        .arg(counter)
        .arg(0)
        .arg(format::LONGEST_TOKEN);
    let mut replies = connection.send_all(&sizes).await?.into_iter();
    let key_type: String = read(replies.next())?;
    let ttl: i64 = read(replies.next())?;
    let ttl = u64::try_from(ttl).ok().map(Duration::from_millis);
    // A user without fenced locks may not be allowed to read the counter.
    let token = read::<String>(replies.next()).ok();
    let token = token
        .filter(|token| token.len() <= format::LONGEST_TOKEN)
        .and_then(|token| token.parse().ok())
        .map(FencingToken::new);
    let (kind, owners, token) = match &*key_type {
        "none" => return Ok(None),
        "hash" => (Kind::Fenced, owners(redis, &key).await?, token),
        "string" => (Kind::Simple, owner(redis, &key).await?, None),
        _ => return Err(not_a_lock()),
    };
    let owners = owners.into_iter();
    let owners = owners.map(|(owner, count)| HolderSnapshot { owner, count, ttl });
    let holding = LockSnapshot {
        owners: owners.collect(),
        ttl,
        token,
        ..LockSnapshot::default()
    };
    if holding.owners.is_empty() {
        return Ok(None);
    }
    Ok(Some((
        crate::engine::inspect::kind_of(kind, &holding),
        holding,
    )))
}

/// Returns the owners of a hash and their hold counts. Names are read before values, and the sizes of values before
/// their contents.
async fn owners(redis: &Redis, key: &str) -> Result<Vec<(String, u64)>, StoreError> {
    let connection = redis.foreground.connection();
    let mut names: Vec<Vec<u8>> = Vec::new();
    // Two names are read first: a name may be of any length, and of another program's hash no more are read.
    for most in [2, MOST_OWNERS + 1] {
        let mut sample = redis::cmd("HRANDFIELD");
        sample.arg(key).arg(most);
        names = read(Some(connection.send(&sample).await?))?;
        if !names.iter().all(|name| format::owner(name).is_some()) {
            return Err(not_a_lock());
        }
        if names.len() < most {
            break;
        }
    }
    if names.len() > MOST_OWNERS {
        return Err(not_a_lock());
    }
    let of_each = |command: &str| {
        let mut commands = Pipeline::new();
        for name in &names {
            commands.cmd(command).arg(key).arg(name);
        }
        commands
    };
    for size in connection.send_all(&of_each("HSTRLEN")).await? {
        if read::<usize>(Some(size))? > format::LONGEST_COUNT {
            return Err(not_a_lock());
        }
    }
    let counts = connection.send_all(&of_each("HGET")).await?;
    let mut owners = Vec::new();
    for (name, count) in names.iter().zip(counts) {
        // A hold that was released in the meantime is no reason to call the lock foreign.
        let Some(count) = read::<Option<Vec<u8>>>(Some(count))? else {
            continue;
        };
        let count = Some(count).filter(|count| format::is_hold_count(count));
        let count = count.and_then(|count| String::from_utf8(count).ok()?.parse().ok());
        let count = count.ok_or_else(not_a_lock)?;
        owners.push((String::from_utf8_lossy(name).into_owned(), count));
    }
    Ok(owners)
}

async fn owner(redis: &Redis, key: &str) -> Result<Vec<(String, u64)>, StoreError> {
    let mut get = redis::cmd("GETRANGE");
    get.arg(key).arg(0).arg(127);
    let value: Vec<u8> = read(Some(redis.foreground.connection().send(&get).await?))?;
    // The hold may have ended in the meantime.
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let owner = String::from_utf8(value).ok();
    let owner = owner.filter(|owner| owner.parse::<OwnerId>().is_ok());
    owner.map(|owner| vec![(owner, 1)]).ok_or_else(not_a_lock)
}

fn not_a_lock() -> StoreError {
    StoreError::new(
        StoreErrorKind::WrongKind,
        "its key holds data of another program",
    )
}

/// Reads a reply; an error is the server's.
fn read<T: FromRedisValue>(reply: Option<Value>) -> Result<T, StoreError> {
    let reply = reply.unwrap_or(Value::Nil).extract_error();
    let reply = reply.map_err(|error| failure::from_call_error(&error))?;
    redis::from_redis_value(reply)
        .map_err(|error| StoreError::new(StoreErrorKind::Unexpected, error.to_string()))
}
