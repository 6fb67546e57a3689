//! Script results that mean the same for several primitives.

use std::time::Duration;

use redis::Value;

use crate::engine::redis::failure;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::Reply;

/// Returns the reply to a release or an undo.
pub(super) fn release_reply(code: i64) -> Reply {
    match code {
        -6 => Reply::Tombstoned,
        -3 => Reply::Kept,
        -2 => Reply::Taken,
        -1 => Reply::Gone,
        subscribers => Reply::Released {
            subscribers: u32::try_from(subscribers).unwrap_or(0),
        },
    }
}

/// Returns the reply for one item of a renewal's result.
pub(super) fn renewal(reply: Value) -> Result<Reply, StoreError> {
    match reply {
        Value::Int(1) => Ok(Reply::Renewed),
        Value::Int(-1) => Ok(Reply::Gone),
        Value::Int(-2) => Ok(Reply::Taken),
        Value::BulkString(error) => Err(failure::from_text(&String::from_utf8_lossy(&error))),
        other => Err(unexpected(&other)),
    }
}

/// Returns the error of a script that would have shared side keys with another name, as lua/format/alias.lua reports it.
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
