//! Which locks there are: SCAN, never KEYS.

#![expect(
    clippy::disallowed_methods,
    reason = "many small looks go out together"
)]

use std::sync::Arc;

use redis::{Cmd, Value};
use tokio::task::JoinSet;

use super::Redis;
use super::keys::OUT;
use crate::engine::{Cause, Failure, Page, glob};
use crate::protocol::{Kind, OwnerId, Subject};

/// How many keys a server looks at in one step.
const STEP: u32 = 1000;

/// First come the hashes, then the strings, then what semaphores keep of permits that are out. A server's cursors do not go
/// so far.
const STRINGS: u64 = 1 << 63;
const PERMITS: u64 = 1 << 62;
const CURSOR: u64 = !(STRINGS | PERMITS);

/// An owner of ours is no longer than this. What else is kept in strings may be long, and is not to be read.
const LONGEST_OWNER: u32 = 64;

/// Locks whose names match a pattern, some at a time.
pub(super) async fn find(redis: Arc<Redis>, pattern: &str, from: u64) -> Result<Page, Failure> {
    let (keys, cursor) = (&redis.keys, from & CURSOR);
    let lock = |key: &str| keys.name(key).map(str::to_owned);
    if from & (STRINGS | PERMITS) == 0 {
        let keys = keys.pattern(pattern);
        let (next, names) = scan(&redis, "hash", keys, cursor, pattern, lock).await?;
        let found = names.iter().map(|name| Subject::new(Kind::Mutex, &**name));
        return Ok(Page {
            found: found.collect(),
            next: Some(if next == 0 { STRINGS } else { next }),
        });
    }
    if from & PERMITS != 0 {
        let semaphore = |key: &str| keys.name_of_out(key).map(str::to_owned);
        let keys = format!("*{OUT}");
        let (next, names) = scan(&redis, "zset", keys, cursor, pattern, semaphore).await?;
        let found = names
            .iter()
            .map(|name| Subject::new(Kind::Semaphore, &**name));
        return Ok(Page {
            found: found.collect(),
            next: (next != 0).then_some(next | PERMITS),
        });
    }
    let keys = keys.pattern(pattern);
    let (next, names) = scan(&redis, "string", keys, cursor, pattern, lock).await?;
    let next = Some(if next == 0 { PERMITS } else { next | STRINGS });
    let mut looks = JoinSet::new();
    for name in names {
        let redis = redis.clone();
        looks.spawn(async move {
            is_ours(&redis, &name)
                .await
                .map(|ours| ours.then_some(name))
        });
    }
    let mut found = Vec::new();
    while let Some(look) = looks.join_next().await {
        let gone = || Err(Failure::new(Cause::Interrupted, "the look was given up"));
        let ours = look.unwrap_or_else(|_| gone())?;
        found.extend(ours.map(|name| Subject::new(Kind::Simple, name)));
    }
    Ok(Page { found, next })
}

/// Whether a string is a lock of ours, which says so. Anything else may be kept in one, and is not read.
async fn is_ours(redis: &Redis, name: &str) -> Result<bool, Failure> {
    let mut get = redis::cmd("GETRANGE");
    get.arg(redis.keys.lock(name).to_string());
    get.arg(0).arg(LONGEST_OWNER);
    let value = match send(redis, &get).await {
        // Another type by now, or none of ours to look at.
        Err(failure) if matches!(failure.cause, Cause::Denied | Cause::WrongKind) => {
            return Ok(false);
        }
        value => value?,
    };
    let value: Vec<u8> = redis::from_redis_value(value).unwrap_or_default();
    let owner = std::str::from_utf8(&value);
    Ok(owner.is_ok_and(|owner| owner.parse::<OwnerId>().is_ok()))
}

/// One step, among keys of one type: where to go on, and the names that match.
async fn scan(
    redis: &Redis,
    of_type: &str,
    keys: String,
    from: u64,
    pattern: &str,
    name: impl Fn(&str) -> Option<String>,
) -> Result<(u64, Vec<String>), Failure> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(from).arg("MATCH").arg(keys);
    scan.arg("COUNT").arg(STEP).arg("TYPE").arg(of_type);
    let page = send(redis, &scan).await?;
    let (next, keys): (u64, Vec<Vec<u8>>) = redis::from_redis_value(page)
        .map_err(|error| Failure::new(Cause::Unexpected, error.to_string()))?;
    // Names are text; a key that is not was made by somebody else.
    let keys = keys.iter().filter_map(|key| std::str::from_utf8(key).ok());
    let names = keys.filter_map(name);
    let names = names.filter(|name| glob::matches(pattern, name));
    Ok((next, names.collect()))
}

async fn send(redis: &Redis, cmd: &Cmd) -> Result<Value, Failure> {
    redis.waited_for.connection().send(cmd).await
}
