//! Commands on strings.

use crate::Value;
use crate::arguments::{float, index, integer, is_word};
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
        "getset" => |core, call| {
            let before = core.keyspace.read(&call.args[1])?.cloned();
            put(core, &call.args[1], &call.args[2], None);
            Ok(Value::optional(before))
        },
        "strlen" => |core, call| {
            let text: Option<&Vec<u8>> = core.keyspace.read(&call.args[1])?;
            Ok(Value::count(text.map_or(0, Vec::len)))
        },
        "set" => set,
        "setnx" => |core, call| {
            let is_new = !core.keyspace.exists(&call.args[1]);
            if is_new {
                put(core, &call.args[1], &call.args[2], None);
            }
            Ok(Value::Integer(is_new.into()))
        },
        "setex" | "psetex" => |core, call| {
            let unit = if call.name == "setex" { 1000 } else { 1 };
            let expires = positive_deadline(core, call, &call.args[2], unit, true)?;
            put(core, &call.args[1], &call.args[3], Some(expires));
            Ok(Value::OK)
        },
        "mset" | "msetnx" => set_many,
        "append" => |core, call| {
            let text: &mut Vec<u8> = core.keyspace.create(&call.args[1])?;
            text.extend_from_slice(&call.args[2]);
            let length = text.len();
            core.keyspace.changed(&call.args[1]);
            Ok(Value::count(length))
        },
        "getrange" | "substr" => get_range,
        "setrange" => set_range,
        "setbit" => set_bit,
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
        "incrbyfloat" => add_float,
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
            // The same option again takes the place of the one before.
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

fn set_many(core: &mut Core, call: &Call<'_>) -> Reply {
    let pairs = &call.args[1..];
    if !pairs.len().is_multiple_of(2) {
        return Err(Failure::arity(call.name));
    }
    let only_new = call.name == "msetnx";
    if only_new && pairs.chunks(2).any(|pair| core.keyspace.exists(&pair[0])) {
        return Ok(Value::Integer(0));
    }
    for pair in pairs.chunks(2) {
        put(core, &pair[0], &pair[1], None);
    }
    Ok(if only_new {
        Value::Integer(1)
    } else {
        Value::OK
    })
}

fn get_range(core: &mut Core, call: &Call<'_>) -> Reply {
    let (first, last) = (integer(&call.args[2])?, integer(&call.args[3])?);
    let Some(text): Option<&Vec<u8>> = core.keyspace.read(&call.args[1])? else {
        return Ok(Value::Bulk(Vec::new()));
    };
    if first < 0 && last < 0 && first > last {
        return Ok(Value::Bulk(Vec::new()));
    }
    // Unlike a list's, a string's last index is the first byte if it is before the beginning.
    let place = |number| usize::try_from(index(number, text.len()).max(0)).unwrap_or(usize::MAX);
    let end = place(last).saturating_add(1).min(text.len());
    Ok(Value::bulk(text.get(place(first)..end).unwrap_or_default()))
}

fn set_range(core: &mut Core, call: &Call<'_>) -> Reply {
    let offset = integer(&call.args[2])?;
    let offset = usize::try_from(offset).map_err(|_| Failure::general("offset is out of range"))?;
    let value = &call.args[3];
    let length = core
        .keyspace
        .read::<Vec<u8>>(&call.args[1])?
        .map_or(0, Vec::len);
    if value.is_empty() {
        return Ok(Value::count(length));
    }
    let end = offset.saturating_add(value.len());
    if end > LONGEST {
        let text = "string exceeds maximum allowed size (proto-max-bulk-len)";
        return Err(Failure::general(text));
    }
    let text: &mut Vec<u8> = core.keyspace.create(&call.args[1])?;
    text.resize(text.len().max(end), 0);
    text[offset..end].copy_from_slice(value);
    let length = text.len();
    core.keyspace.changed(&call.args[1]);
    Ok(Value::count(length))
}

fn set_bit(core: &mut Core, call: &Call<'_>) -> Reply {
    let offset = integer(&call.args[2]).ok();
    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
    let offset = offset
        .filter(|offset| offset / 8 < LONGEST)
        .ok_or_else(|| Failure::general("bit offset is not an integer or out of range"))?;
    let bit = match call.args[3].as_slice() {
        b"0" => 0,
        b"1" => 1,
        _ => return Err(Failure::general("bit is not an integer or out of range")),
    };
    let text: &mut Vec<u8> = core.keyspace.create(&call.args[1])?;
    let (byte, shift) = (offset / 8, 7 - offset % 8);
    text.resize(text.len().max(byte + 1), 0);
    let before = (text[byte] >> shift) & 1;
    text[byte] = (text[byte] & !(1 << shift)) | (bit << shift);
    core.keyspace.changed(&call.args[1]);
    Ok(Value::Integer(before.into()))
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

/// Redis adds with eighty bits; here a sum of long fractions may end in other digits.
fn add_float(core: &mut Core, call: &Call<'_>) -> Reply {
    let no_float = || Failure::general("value is not a valid float");
    let before = core.keyspace.read::<Vec<u8>>(&call.args[1])?;
    let before = before
        .map_or(Some(0.0), |text| float(text))
        .ok_or_else(no_float)?;
    let sum = before + float(&call.args[2]).ok_or_else(no_float)?;
    if !sum.is_finite() {
        return Err(Failure::general("increment would produce NaN or Infinity"));
    }
    let text = sum.to_string();
    *core.keyspace.create(&call.args[1])? = text.clone().into_bytes();
    core.keyspace.changed(&call.args[1]);
    Ok(Value::bulk(text))
}

/// The longest string there may be.
const LONGEST: usize = 512 * 1024 * 1024;
