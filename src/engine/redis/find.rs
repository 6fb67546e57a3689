//! Lists the locks of a server with SCAN, never KEYS. Each page of keys costs a few round trips of cheap commands,
//! whatever the keys contain; the caller inspects the keys that may be locks.

use redis::{Cmd, ErrorKind, Pipeline, ServerErrorKind, Value};

use super::Redis;
use super::format;
use super::keys::PERMIT_TIMEOUTS_SUFFIX;
use crate::engine::{Page, StoreError, StoreErrorKind, glob};
use crate::protocol::{Kind, OwnerId, Subject};

/// Number of keys that a server examines in one step.
const SCAN_COUNT: u32 = 1000;

/// Number of keys that are probed in one call: the name of a field or member may be of any length, and no command
/// reports that length.
const PROBE_BATCH: usize = 100;

/// Marks a cursor of the second pass. It follows the keys that match the pattern, and scans the permits of semaphores,
/// whose keys have another form. A server's own cursors are smaller than this.
const PERMITS_PASS: u64 = 1 << 62;

/// Upper bound for the length of an owner. Other strings may be longer, and are not read beyond this.
const LONGEST_OWNER: u32 = 64;

/// A key that may be a lock's.
struct Candidate {
    key: String,
    /// Name of the lock, if the key is a lock's.
    lock: Option<String>,
    /// Name of the semaphore, if the key holds its permits.
    semaphore: Option<String>,
}

/// Returns one page of the locks whose names match a pattern.
pub(super) async fn find(redis: &Redis, pattern: &str, from: u64) -> Result<Page, StoreError> {
    let keys = redis.keys.scan_pattern(pattern);
    // Such a pattern also matches the keys of permits.
    let whole = keys.bytes().all(|b| b == b'*');
    let second = from & PERMITS_PASS != 0;
    let mut scan = redis::cmd("SCAN");
    scan.arg(from & !PERMITS_PASS).arg("MATCH");
    match second {
        false => scan.arg(keys),
        true => scan.arg(format!("*{PERMIT_TIMEOUTS_SUFFIX}")),
    };
    scan.arg("COUNT").arg(SCAN_COUNT);
    if second {
        scan.arg("TYPE").arg("zset");
    }
    let page = send(redis, &scan).await?;
    let (next, keys): (u64, Vec<Vec<u8>>) = redis::from_redis_value(page)
        .map_err(|error| StoreError::new(StoreErrorKind::Unexpected, error.to_string()))?;
    let scanned = match (second, whole) {
        (true, _) => 0,
        (false, true) => keys.len() as u64,
        (false, false) => u64::from(SCAN_COUNT),
    };
    // Lock names are text, so a key that is not text belongs to another program.
    let keys = keys
        .into_iter()
        .filter_map(|key| String::from_utf8(key).ok());
    let candidates = keys.filter_map(|key| candidate(redis, pattern, key, whole, second));
    let found = probe(redis, candidates.collect()).await?;
    let next = match (next, second) {
        (0, false) if !whole => Some(PERMITS_PASS),
        (0, _) => None,
        (next, true) => Some(next | PERMITS_PASS),
        (next, false) => Some(next),
    };
    Ok(Page {
        found,
        next,
        scanned,
    })
}

fn candidate(
    redis: &Redis,
    pattern: &str,
    key: String,
    whole: bool,
    second: bool,
) -> Option<Candidate> {
    let matches = |name: &&str| glob::matches(pattern, name);
    let lock = redis.keys.name(&key).filter(matches);
    let lock = lock.filter(|_| !second).map(str::to_owned);
    let semaphore = redis.keys.name_of_permit_timeouts(&key).filter(matches);
    let semaphore = semaphore.filter(|_| whole || second).map(str::to_owned);
    if lock.is_none() && semaphore.is_none() {
        return None;
    }
    Some(Candidate {
        key,
        lock,
        semaphore,
    })
}

/// Returns the candidates that may be locks, judged by their types and by one or two of their fields or members.
async fn probe(redis: &Redis, candidates: Vec<Candidate>) -> Result<Vec<Subject>, StoreError> {
    let connection = redis.foreground.connection();
    let mut types = Pipeline::with_capacity(candidates.len());
    for candidate in &candidates {
        types.cmd("TYPE").arg(&candidate.key);
    }
    let types = connection.send_all(&types).await?;
    let mut probes = Vec::new();
    let mut found = Vec::new();
    let mut probed = Vec::new();
    for (candidate, key_type) in candidates.into_iter().zip(types) {
        let key = &candidate.key;
        let key_type = match key_type {
            Value::ServerError(_) => {
                if is_moving(&key_type) {
                    let permits = |name| Subject::new(Kind::Semaphore, name);
                    found.extend(candidate.lock.map(mutex));
                    found.extend(candidate.semaphore.map(permits));
                }
                continue;
            }
            key_type => redis::from_redis_value::<String>(key_type).unwrap_or_default(),
        };
        probed.push(match (&*key_type, candidate.lock, candidate.semaphore) {
            ("hash", Some(name), _) => {
                probes.push(command("HRANDFIELD", key, &[2]));
                Subject::new(Kind::Mutex, name)
            }
            ("string", Some(name), _) => {
                probes.push(command("GETRANGE", key, &[0, LONGEST_OWNER]));
                Subject::new(Kind::Simple, name)
            }
            ("zset", _, Some(name)) => {
                probes.push(command("ZRANGE", key, &[0, 0]));
                Subject::new(Kind::Semaphore, name)
            }
            _ => continue,
        });
    }
    let mut replies = Vec::with_capacity(probes.len());
    for some in probes.chunks(PROBE_BATCH) {
        let mut pipeline = Pipeline::with_capacity(some.len());
        for probe in some {
            pipeline.add_command(probe.clone());
        }
        replies.extend(connection.send_all(&pipeline).await?);
    }
    for (subject, reply) in probed.into_iter().zip(replies) {
        let is_lock = match &reply {
            Value::ServerError(_) => {
                is_moving(&reply) || subject.kind == Kind::Mutex && is_denied(&reply)
            }
            _ => is_lock_like(subject.kind, reply),
        };
        found.extend(is_lock.then_some(subject));
    }
    Ok(found)
}

fn command(command: &str, key: &str, numbers: &[u32]) -> Cmd {
    let mut cmd = redis::cmd(command);
    cmd.arg(key).arg(numbers);
    cmd
}

fn mutex(name: String) -> Subject {
    Subject::new(Kind::Mutex, name)
}

/// Returns whether the reply to a probe fits a lock of this kind.
fn is_lock_like(kind: Kind, reply: Value) -> bool {
    if kind == Kind::Simple {
        let value: Vec<u8> = redis::from_redis_value(reply).unwrap_or_default();
        let owner = std::str::from_utf8(&value);
        return owner.is_ok_and(|owner| owner.parse::<OwnerId>().is_ok());
    }
    let some: Vec<Vec<u8>> = redis::from_redis_value(reply).unwrap_or_default();
    if kind == Kind::Semaphore {
        let is_hex = |id: &[u8]| id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit);
        return some.first().is_some_and(|id| id.len() == 16 || is_hex(id));
    }
    let owner = |field: &Vec<u8>| format::owner(field).is_some();
    some.iter().any(owner) && some.iter().all(|field| field == b"mode" || owner(field))
}

/// Returns whether the server redirected the probe: the slot has moved, and only a later call can inspect the key.
fn is_moving(reply: &Value) -> bool {
    let moved = [
        ServerErrorKind::Moved,
        ServerErrorKind::Ask,
        ServerErrorKind::TryAgain,
    ];
    matches!(reply, Value::ServerError(error) if error.kind().is_some_and(|kind| moved.contains(&kind)))
}

/// Returns whether this user may not run the probe command. An inspection may work without that command.
fn is_denied(reply: &Value) -> bool {
    let error = reply.clone().extract_error().err();
    error.is_some_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm))
}

async fn send(redis: &Redis, cmd: &Cmd) -> Result<Value, StoreError> {
    redis.foreground.connection().send(cmd).await
}
