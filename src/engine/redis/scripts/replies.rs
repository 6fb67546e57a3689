//! Script results that mean the same for several primitives.

use std::time::Duration;

use redis::Value;

use crate::engine::redis::failure;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::Reply;

// The codes of the scripts in place of a number: each has one meaning in all of them, which the header of a script
// repeats under "Returns".

/// No owner holds the lock, or the owner's permits are gone; to a request for permits: others are first.
pub(super) const GONE: i64 = -1;
/// Another owner holds the lock.
pub(super) const TAKEN: i64 = -2;
/// To an acquire: granted. To a release: the owner still holds the lock.
pub(super) const GRANTED: i64 = -3;
/// The acquire was undone before it arrived.
pub(super) const UNDONE: i64 = -4;
/// There is no hold to re-enter.
pub(super) const NO_HOLD: i64 = -5;
/// Nothing was released; the acquire is refused if it still arrives.
pub(super) const TOMBSTONED: i64 = -6;

/// Returns the reply to a release or an undo.
pub(super) fn release_reply(code: i64) -> Reply {
    match code {
        TOMBSTONED => Reply::Tombstoned,
        GRANTED => Reply::Kept,
        TAKEN => Reply::Taken,
        GONE => Reply::Gone,
        subscribers => Reply::Released {
            subscribers: u32::try_from(subscribers).unwrap_or(0),
        },
    }
}

/// Returns the reply for one item of a renewal's result.
pub(super) fn renewal(reply: Value) -> Result<Reply, StoreError> {
    match reply {
        Value::Int(1) => Ok(Reply::Renewed),
        Value::Int(GONE) => Ok(Reply::Gone),
        Value::Int(TAKEN) => Ok(Reply::Taken),
        Value::BulkString(error) => Err(failure::from_text(&String::from_utf8_lossy(&error))),
        other => Err(unexpected(&other)),
    }
}

/// Returns the error of a script that would have shared auxiliary keys with another name, as lua/format/alias.lua reports it.
pub(super) fn alias_conflict(reply: &Value) -> Option<StoreError> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [Value::BulkString(word), Value::BulkString(alias)] = &parts[..] else {
        return None;
    };
    (word == b"TWIN").then(|| {
        let alias = String::from_utf8_lossy(alias);
        let detail = format!("its queue, readers and permits would share Redisson's keys with those of `{alias}`, which exists");
        StoreError::new(StoreErrorKind::WrongKind, detail)
    })
}

/// Returns a value as text. Data of another program need not be text.
pub(super) fn text(value: Value) -> Result<String, StoreError> {
    let bytes: Vec<u8> = redis::from_redis_value(value).map_err(|e| unexpected(&e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn remaining(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().map(Duration::from_millis)
}

pub(super) fn unexpected(what: &impl std::fmt::Debug) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unexpected,
        format!("unexpected reply {what:?}"),
    )
}
