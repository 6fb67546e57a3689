//! What is held under a name: one call that reads, and one more for each further page of a very large lock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, Pipeline, Value};
use tokio::time::Instant;

use super::format::{self, MOST_OWNERS};
use super::scripts::{Call, Inspection, Readable};
use super::{Redis, failure};
use crate::engine::{Cause, Failure};
use crate::protocol::{Action, FencingToken, HeldBy, Holding, Kind, OwnerId, Request, Subject};

type Found = Result<Option<(Kind, Holding)>, Failure>;

/// How long a denial is remembered: an administrator may allow more.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The sets of keys that the server has denied lately, so that each is tried once and not for every lock: a denied call is
/// noted in the server's ACL LOG.
#[derive(Debug, Default)]
pub(super) struct Unreadable(Mutex<Vec<(Readable, Instant)>>);

impl Unreadable {
    #[expect(clippy::disallowed_methods, reason = "engines have a clock")]
    fn add(&self, readable: Readable) {
        let mut denied = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !denied.iter().any(|(known, _)| *known == readable) {
            denied.push((readable, Instant::now()));
        }
    }

    /// Those that may be tried: all of them, where none is left.
    fn others(&self) -> Vec<Readable> {
        let mut denied = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        denied.retain(|(_, since)| since.elapsed() < REMEMBERED);
        let is_denied = |readable| denied.iter().any(|(known, _)| *known == readable);
        let others = Readable::EACH.into_iter();
        let others: Vec<_> = others.filter(|readable| !is_denied(*readable)).collect();
        match others.is_empty() {
            true => Readable::EACH.into(),
            false => others,
        }
    }
}

/// Reports who holds it.
pub(super) async fn inspect(redis: &Redis, name: Arc<str>) -> Found {
    if redis.unscripted.is_some() {
        return without_scripts(redis, &name).await;
    }
    let request = Subject::new(Kind::Mutex, name).request(Action::Inspect);
    // A user may be allowed to read the lock, and not all keys beside it.
    let mut seen = Err(foreign());
    for readable in redis.unreadable.others() {
        let mut found = match page(redis, &request, readable, None).await {
            Err(failure) if failure.cause == Cause::Denied => {
                redis.unreadable.add(readable);
                seen = seen.or(Err(failure));
                continue;
            }
            found => found?,
        };
        while let Some(cursor) = found.next().map(str::to_owned) {
            found.add(page(redis, &request, readable, Some(&cursor)).await?);
        }
        let complete = found.is_complete(readable);
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
    readable: Readable,
    cursor: Option<&str>,
) -> Result<Inspection, Failure> {
    let call = Call::inspect(request, &redis.keys, readable, cursor);
    let ran = redis.waited_for.connection().run(&call).await?;
    Inspection::read(ran.said()?.value)
}

/// The same by plain commands, sizes before contents: of the kinds that do without scripts.
async fn without_scripts(redis: &Redis, name: &str) -> Found {
    let key = redis.keys.lock(name).to_string();
    let connection = redis.waited_for.connection();
    let mut sizes = Pipeline::new();
    sizes.cmd("TYPE").arg(&key);
    sizes.cmd("PTTL").arg(&key);
    let counter = redis.keys.token(name).to_string();
    sizes
        .cmd("GETRANGE")
        .arg(counter)
        .arg(0)
        .arg(format::LONGEST_TOKEN);
    let mut answers = connection.send_all(&sizes).await?.into_iter();
    let of_type: String = read(answers.next())?;
    let ttl: i64 = read(answers.next())?;
    let ttl = u64::try_from(ttl).ok().map(Duration::from_millis);
    // A user without fenced locks may not be allowed to read it.
    let token = read::<String>(answers.next()).ok();
    let token = token
        .filter(|token| token.len() <= format::LONGEST_TOKEN)
        .and_then(|token| token.parse().ok())
        .map(FencingToken::new);
    let (kind, owners, token) = match &*of_type {
        "none" => return Ok(None),
        "hash" => (Kind::Fenced, owners(redis, &key).await?, token),
        "string" => (Kind::Simple, owner(redis, &key).await?, None),
        _ => return Err(foreign()),
    };
    let owners = owners.into_iter();
    let owners = owners.map(|(owner, count)| HeldBy { owner, count, ttl });
    let holding = Holding {
        owners: owners.collect(),
        ttl,
        token,
        ..Holding::default()
    };
    if holding.owners.is_empty() {
        return Ok(None);
    }
    Ok(Some((
        crate::engine::inspect::kind_of(kind, &holding),
        holding,
    )))
}

/// The owners of a hash and their hold counts: names before values, and the sizes of values before their contents.
async fn owners(redis: &Redis, key: &str) -> Result<Vec<(String, u64)>, Failure> {
    let connection = redis.waited_for.connection();
    let mut names: Vec<Vec<u8>> = Vec::new();
    // Two names first: a name may be of any length, and of another program's hash no more are read.
    for most in [2, MOST_OWNERS + 1] {
        let mut sample = redis::cmd("HRANDFIELD");
        sample.arg(key).arg(most);
        names = read(Some(connection.send(&sample).await?))?;
        if !names.iter().all(|name| format::owner(name).is_some()) {
            return Err(foreign());
        }
        if names.len() < most {
            break;
        }
    }
    if names.len() > MOST_OWNERS {
        return Err(foreign());
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
            return Err(foreign());
        }
    }
    let counts = connection.send_all(&of_each("HGET")).await?;
    let mut owners = Vec::new();
    for (name, count) in names.iter().zip(counts) {
        // A hold that was released meanwhile is no reason to call the lock foreign.
        let Some(count) = read::<Option<Vec<u8>>>(Some(count))? else {
            continue;
        };
        let count = Some(count).filter(|count| format::is_hold_count(count));
        let count = count.and_then(|count| String::from_utf8(count).ok()?.parse().ok());
        let count = count.ok_or_else(foreign)?;
        owners.push((String::from_utf8_lossy(name).into_owned(), count));
    }
    Ok(owners)
}

async fn owner(redis: &Redis, key: &str) -> Result<Vec<(String, u64)>, Failure> {
    let mut get = redis::cmd("GETRANGE");
    get.arg(key).arg(0).arg(127);
    let value: Vec<u8> = read(Some(redis.waited_for.connection().send(&get).await?))?;
    // It may have ended meanwhile.
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let owner = String::from_utf8(value).ok();
    let owner = owner.filter(|owner| owner.parse::<OwnerId>().is_ok());
    owner.map(|owner| vec![(owner, 1)]).ok_or_else(foreign)
}

fn foreign() -> Failure {
    Failure::new(Cause::WrongKind, "its key holds data of another program")
}

/// Reads an answer; an error is the server's.
fn read<T: FromRedisValue>(answer: Option<Value>) -> Result<T, Failure> {
    let answer = answer.unwrap_or(Value::Nil).extract_error();
    let answer = answer.map_err(|error| failure::of_calling(&error))?;
    redis::from_redis_value(answer)
        .map_err(|error| Failure::new(Cause::Unexpected, error.to_string()))
}
