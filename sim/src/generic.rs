//! Commands on keys of any type.

use crate::Value;
use crate::arguments::{integer, is_word, text};
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::glob;

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "del" | "unlink" => |core, call| {
            let keys = call.args[1..].iter();
            Ok(Value::count(
                keys.filter(|key| core.keyspace.remove(key).is_some())
                    .count(),
            ))
        },
        "exists" | "touch" => |core, call| {
            let keys = call.args[1..].iter();
            Ok(Value::count(
                keys.filter(|key| core.keyspace.exists(key)).count(),
            ))
        },
        "type" => |core, call| {
            let entry = core.keyspace.get(&call.args[1]);
            let name = entry.map_or("none", |entry| entry.data.type_name());
            Ok(Value::Simple(name.into()))
        },
        "ttl" | "pttl" | "expiretime" | "pexpiretime" => remaining,
        "expire" | "pexpire" | "expireat" | "pexpireat" => expire,
        "persist" => |core, call| {
            let entry = core.keyspace.get(&call.args[1]);
            let expired = entry.and_then(|entry| entry.expires.take()).is_some();
            if expired {
                core.keyspace.changed(&call.args[1]);
            }
            Ok(Value::Integer(expired.into()))
        },
        "rename" | "renamenx" => rename,
        "copy" => copy,
        "keys" => |core, call| {
            let keys = core.keyspace.keys().map(|(key, _)| key);
            Ok(Value::bulks(
                keys.filter(|key| glob::selects(&call.args[1], key)),
            ))
        },
        "dbsize" => |core, _| Ok(Value::count(core.keyspace.len())),
        "flushall" | "flushdb" => |core, call| {
            let is_known = match &call.args[1..] {
                [] => true,
                [mode] => is_word(mode, "sync") || is_word(mode, "async"),
                _ => false,
            };
            if !is_known {
                return Err(Failure::syntax());
            }
            core.keyspace.flush(call.name == "flushall");
            Ok(Value::OK)
        },
        "object|encoding" => |core, call| {
            let entry = core.keyspace.get(&call.args[2]);
            Ok(entry.map_or(Value::Nil, |entry| {
                Value::bulk(match entry.data.type_name() {
                    "string" => "raw",
                    "list" => "quicklist",
                    _ => "listpack",
                })
            }))
        },
        _ => return None,
    })
}

/// Converts a number of some unit to milliseconds and adds the current time. `None` if the result is no time.
pub(crate) fn deadline(number: i64, unit: i64, now: u64) -> Option<i64> {
    let now = i64::try_from(now).ok()?;
    number.checked_mul(unit)?.checked_add(now)
}

fn remaining(core: &mut Core, call: &Call<'_>) -> Reply {
    let now = core.keyspace.now();
    let Some(entry) = core.keyspace.get(&call.args[1]) else {
        return Ok(Value::Integer(-2));
    };
    let Some(expires) = entry.expires else {
        return Ok(Value::Integer(-1));
    };
    let left = if call.name.ends_with("time") {
        expires
    } else {
        expires.saturating_sub(now)
    };
    let left = if call.name.starts_with('p') {
        left
    } else {
        (left + 500) / 1000
    };
    Ok(Value::Integer(i64::try_from(left).unwrap_or(i64::MAX)))
}

fn expire(core: &mut Core, call: &Call<'_>) -> Reply {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in &call.args[3..] {
        match text(option).to_ascii_lowercase().as_str() {
            "nx" => nx = true,
            "xx" => xx = true,
            "gt" => gt = true,
            "lt" => lt = true,
            _ => {
                let option = text(option);
                return Err(Failure::general(format!("Unsupported option {option}")));
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err(Failure::general(
            "NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if gt && lt {
        return Err(Failure::general(
            "GT and LT options at the same time are not compatible",
        ));
    }
    let number = integer(&call.args[2])?;
    let unit = if call.name.starts_with('p') { 1 } else { 1000 };
    let now = core.keyspace.now();
    let base = if call.name.ends_with("at") { 0 } else { now };
    let when = deadline(number, unit, base).ok_or_else(|| {
        let name = call.name;
        Failure::general(format!("invalid expire time in '{name}' command"))
    })?;
    let Some(entry) = core.keyspace.get(&call.args[1]) else {
        return Ok(Value::Integer(0));
    };
    let current = entry
        .expires
        .and_then(|expires| i64::try_from(expires).ok());
    let is_refused = (nx && current.is_some())
        || (xx && current.is_none())
        || (gt && current.is_none_or(|current| when <= current))
        || (lt && current.is_some_and(|current| when >= current));
    if is_refused {
        return Ok(Value::Integer(0));
    }
    match u64::try_from(when).ok().filter(|&when| when > now) {
        Some(when) => {
            entry.expires = Some(when);
            core.keyspace.changed(&call.args[1]);
        }
        None => drop(core.keyspace.remove(&call.args[1])),
    }
    Ok(Value::Integer(1))
}

fn rename(core: &mut Core, call: &Call<'_>) -> Reply {
    let (from, to) = (&call.args[1], &call.args[2]);
    let only_new = call.name == "renamenx";
    if !core.keyspace.exists(from) {
        return Err(Failure::general("no such key"));
    }
    if from == to {
        return Ok(if only_new {
            Value::Integer(0)
        } else {
            Value::OK
        });
    }
    if only_new && core.keyspace.exists(to) {
        return Ok(Value::Integer(0));
    }
    if let Some(entry) = core.keyspace.remove(from) {
        core.keyspace.set(to, entry);
    }
    Ok(if only_new {
        Value::Integer(1)
    } else {
        Value::OK
    })
}

fn copy(core: &mut Core, call: &Call<'_>) -> Reply {
    let (from, to) = (&call.args[1], &call.args[2]);
    let replaces = match &call.args[3..] {
        [] => false,
        [option] if is_word(option, "replace") => true,
        _ => return Err(Failure::syntax()),
    };
    if from == to {
        return Err(Failure::general(
            "source and destination objects are the same",
        ));
    }
    let Some(entry) = core.keyspace.get(from).cloned() else {
        return Ok(Value::Integer(0));
    };
    if !replaces && core.keyspace.exists(to) {
        return Ok(Value::Integer(0));
    }
    core.keyspace.set(to, entry);
    Ok(Value::Integer(1))
}
