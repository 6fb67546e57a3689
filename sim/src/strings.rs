//! Commands on strings.

use crate::Value;
use crate::arguments::{index, integer, is_word};
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::generic::deadline;
use crate::keyspace::{Data, Entry};

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "get" => |core, call| Ok(Value::optional(core.keyspace.read(&call.args[1])?.cloned())),
        "mget" => |core, call| {
            let values = call.args[1..].iter().map(|key| {
                let value = core.keyspace.read::<Vec<u8>>(key);
                Value::optional(value.ok().flatten().cloned())
            });
            Ok(Value::Array(values.collect()))
        },
        "getdel" => |core, call| {
            let value = core.keyspace.read(&call.args[1])?.cloned();
            core.keyspace.remove(&call.args[1]);
            Ok(Value::optional(value))
        },
        "set" => set,
        "getrange" => get_range,
        "incr" => |core, call| add(core, &call.args[1], 1),
        "decr" => |core, call| add(core, &call.args[1], -1),
        "incrby" => |core, call| {
            let by = integer(&call.args[2])?;
            add(core, &call.args[1], by)
        },
        "decrby" => |core, call| {
            let by = integer(&call.args[2])?.checked_neg();
            let by = by.ok_or_else(|| Failure::general("decrement would overflow"))?;
            add(core, &call.args[1], by)
        },
        _ => return None,
    })
}

fn put(core: &mut Core, key: &[u8], value: &[u8], expires: Option<u64>) {
    let entry = Entry {
        data: Data::Text(value.to_vec()),
        expires,
    };
    core.keyspace.set(key, entry);
}

fn positive_deadline(
    core: &Core,
    call: &Call<'_>,
    number: &[u8],
    unit: i64,
    is_relative: bool,
) -> Result<u64, Failure> {
    let number = integer(number)?;
    let now = if is_relative { core.keyspace.now() } else { 0 };
    let when = deadline(number, unit, now).filter(|&when| number > 0 && when > 0);
    when.and_then(|when| u64::try_from(when).ok())
        .ok_or_else(|| {
            let name = call.name;
            Failure::general(format!("invalid expire time in '{name}' command"))
        })
}

fn set(core: &mut Core, call: &Call<'_>) -> Reply {
    let (key, value) = (&call.args[1], &call.args[2]);
    let (mut only_new, mut only_known, mut gets, mut keeps) = (false, false, false, false);
    let mut expiry: Option<(&str, &Vec<u8>, i64, bool)> = None;
    let mut options = call.args[3..].iter();
    while let Some(option) = options.next() {
        let may_expire = !keeps && expiry.is_none();
        let unit = [
            ("ex", 1000, true),
            ("px", 1, true),
            ("exat", 1000, false),
            ("pxat", 1, false),
        ];
        let unit = unit.into_iter().find(|(word, ..)| is_word(option, word));
        if is_word(option, "nx") && !only_known {
            only_new = true;
        } else if is_word(option, "xx") && !only_new {
            only_known = true;
        } else if is_word(option, "get") {
            gets = true;
        } else if is_word(option, "keepttl") && expiry.is_none() {
            keeps = true;
        } else if let (Some((word, unit, is_relative)), Some(number)) = (unit, options.next()) {
            // The same option once more replaces the earlier one.
            let is_same = expiry.is_some_and(|(before, ..)| before == word);
            if !may_expire && !is_same {
                return Err(Failure::syntax());
            }
            expiry = Some((word, number, unit, is_relative));
        } else {
            return Err(Failure::syntax());
        }
    }
    let mut expires = expiry
        .map(|(_, number, unit, is_relative)| {
            positive_deadline(core, call, number, unit, is_relative)
        })
        .transpose()?;
    let before = if gets {
        Some(Value::optional(core.keyspace.read(key)?.cloned()))
    } else {
        None
    };
    let known = core.keyspace.get(key);
    if (only_new && known.is_some()) || (only_known && known.is_none()) {
        return Ok(before.unwrap_or(Value::Nil));
    }
    if keeps {
        expires = known.and_then(|entry| entry.expires);
    }
    put(core, key, value, expires);
    Ok(before.unwrap_or(Value::OK))
}

fn get_range(core: &mut Core, call: &Call<'_>) -> Reply {
    let (first, last) = (integer(&call.args[2])?, integer(&call.args[3])?);
    let Some(text): Option<&Vec<u8>> = core.keyspace.read(&call.args[1])? else {
        return Ok(Value::Bulk(Vec::new()));
    };
    if first < 0 && last < 0 && first > last {
        return Ok(Value::Bulk(Vec::new()));
    }
    // Unlike a list's, a string's last index is the first byte if it lies before the beginning.
    let place = |number| usize::try_from(index(number, text.len()).max(0)).unwrap_or(usize::MAX);
    let end = place(last).saturating_add(1).min(text.len());
    Ok(Value::bulk(text.get(place(first)..end).unwrap_or_default()))
}

fn add(core: &mut Core, key: &[u8], by: i64) -> Reply {
    let before = core.keyspace.read::<Vec<u8>>(key)?;
    let before = before.map_or(Ok(0), |text| integer(text))?;
    let sum = before
        .checked_add(by)
        .ok_or_else(|| Failure::general("increment or decrement would overflow"))?;
    *core.keyspace.create(key)? = sum.to_string().into_bytes();
    core.keyspace.changed(key);
    Ok(Value::Integer(sum))
}
