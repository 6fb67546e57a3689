//! Commands on hashes.

use crate::Value;
use crate::arguments::{integer, is_word, strict_integer};
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::ordered_map::OrderedMap;

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "hget" => |core, call| {
            let hash = hash(core, call)?;
            Ok(Value::optional(
                hash.and_then(|hash| hash.get(&call.args[2])).cloned(),
            ))
        },
        "hmget" => |core, call| {
            let hash = hash(core, call)?;
            let fields = call.args[2..].iter();
            let values = fields.map(|field| hash.and_then(|hash| hash.get(field)).cloned());
            Ok(Value::Array(values.map(Value::optional).collect()))
        },
        "hexists" => |core, call| {
            let hash = hash(core, call)?;
            let exists = hash.is_some_and(|hash| hash.get(&call.args[2]).is_some());
            Ok(Value::Integer(exists.into()))
        },
        "hlen" => |core, call| Ok(Value::count(hash(core, call)?.map_or(0, OrderedMap::len))),
        "hstrlen" => |core, call| {
            let hash = hash(core, call)?;
            let value = hash.and_then(|hash| hash.get(&call.args[2]));
            Ok(Value::count(value.map_or(0, Vec::len)))
        },
        "hgetall" => |core, call| {
            let pairs = hash(core, call)?.into_iter().flat_map(OrderedMap::iter);
            let pairs = pairs.map(|(field, value)| (Value::bulk(field), Value::bulk(value)));
            Ok(Value::Map(pairs.collect()))
        },
        "hkeys" => |core, call| {
            let pairs = hash(core, call)?.into_iter().flat_map(OrderedMap::iter);
            Ok(Value::bulks(pairs.map(|(field, _)| field)))
        },
        "hvals" => |core, call| {
            let pairs = hash(core, call)?.into_iter().flat_map(OrderedMap::iter);
            Ok(Value::bulks(pairs.map(|(_, value)| value)))
        },
        "hset" => set,
        "hsetnx" => |core, call| {
            let hash: &mut OrderedMap = core.keyspace.create(&call.args[1])?;
            let is_new = hash.get(&call.args[2]).is_none();
            if is_new {
                hash.insert(&call.args[2], call.args[3].clone());
                core.keyspace.changed(&call.args[1]);
            }
            Ok(Value::Integer(is_new.into()))
        },
        "hdel" => |core, call| {
            let Some(hash) = core.keyspace.write::<OrderedMap>(&call.args[1])? else {
                return Ok(Value::Integer(0));
            };
            let removed = call.args[2..]
                .iter()
                .filter(|field| hash.remove(field))
                .count();
            if removed > 0 {
                core.keyspace.changed(&call.args[1]);
            }
            Ok(Value::count(removed))
        },
        "hrandfield" => random_fields,
        "hincrby" => add,
        _ => return None,
    })
}

fn hash<'a>(core: &'a mut Core, call: &Call<'_>) -> Result<Option<&'a OrderedMap>, Failure> {
    core.keyspace.read(&call.args[1])
}

fn set(core: &mut Core, call: &Call<'_>) -> Reply {
    let pairs = &call.args[2..];
    if !pairs.len().is_multiple_of(2) {
        return Err(Failure::arity(call.name));
    }
    let hash: &mut OrderedMap = core.keyspace.create(&call.args[1])?;
    let pairs = pairs.chunks(2);
    let added = pairs
        .filter(|pair| hash.insert(&pair[0], pair[1].clone()))
        .count();
    core.keyspace.changed(&call.args[1]);
    Ok(Value::count(added))
}

/// Draws random fields; if as many are requested as there are, all of them in their order.
fn random_fields(core: &mut Core, call: &Call<'_>) -> Reply {
    let count = call.args.get(2).map(|count| integer(count)).transpose()?;
    let with_values = match call.args.get(3..) {
        None | Some([]) => false,
        Some([option]) if is_word(option, "withvalues") => true,
        Some(_) => return Err(Failure::syntax()),
    };
    let pairs = hash(core, call)?.into_iter().flat_map(OrderedMap::iter);
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = pairs.cloned().collect();
    let mut draw = |limit: usize| {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        usize::try_from(core.random.next() % limit).unwrap_or(0)
    };
    let Some(count) = count else {
        let chosen = (!pairs.is_empty()).then(|| pairs[draw(pairs.len())].0.clone());
        return Ok(Value::optional(chosen));
    };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let mut chosen: Vec<usize> = (0..pairs.len()).collect();
    if count < 0 && !pairs.is_empty() {
        chosen = (0..wanted).map(|_| draw(pairs.len())).collect();
    }
    while count >= 0 && chosen.len() > wanted {
        let dropped = draw(chosen.len());
        chosen.remove(dropped);
    }
    let chosen = chosen.into_iter().map(|place| &pairs[place]);
    if !with_values {
        return Ok(Value::bulks(chosen.map(|(field, _)| field)));
    }
    let items = chosen.flat_map(|(field, value)| {
        let pair = [Value::bulk(field), Value::bulk(value)];
        if call.protocol >= 3 {
            vec![Value::Array(pair.into())]
        } else {
            pair.into()
        }
    });
    Ok(Value::Array(items.collect()))
}

fn add(core: &mut Core, call: &Call<'_>) -> Reply {
    let by = integer(&call.args[3])?;
    let before = hash(core, call)?.and_then(|hash| hash.get(&call.args[2]));
    let before = before
        .map_or(Some(0), |text| strict_integer(text))
        .ok_or_else(|| Failure::general("hash value is not an integer"))?;
    let sum = before
        .checked_add(by)
        .ok_or_else(|| Failure::general("increment or decrement would overflow"))?;
    let hash: &mut OrderedMap = core.keyspace.create(&call.args[1])?;
    hash.insert(&call.args[2], sum.to_string().into_bytes());
    core.keyspace.changed(&call.args[1]);
    Ok(Value::Integer(sum))
}
