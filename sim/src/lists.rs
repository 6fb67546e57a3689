//! Commands on lists.

use std::collections::VecDeque;

use crate::Value;
use crate::arguments::{index, integer, is_word, range};
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};

type List = VecDeque<Vec<u8>>;

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "lpush" | "rpush" => push,
        "lpop" | "rpop" => pop,
        "llen" => |core, call| Ok(Value::count(list(core, call)?.map_or(0, List::len))),
        "lindex" => |core, call| {
            let Some(list) = list(core, call)? else {
                return Ok(Value::Nil);
            };
            let place = index(integer(&call.args[2])?, list.len());
            let place = usize::try_from(place).ok();
            Ok(Value::optional(
                place.and_then(|place| list.get(place)).cloned(),
            ))
        },
        "lrange" => |core, call| {
            let (first, last) = (integer(&call.args[2])?, integer(&call.args[3])?);
            let list = list(core, call)?;
            Ok(Value::bulks(list.into_iter().flat_map(|list| {
                list.range(range(first, last, list.len()))
            })))
        },
        "lrem" => remove,
        "lpos" => positions,
        _ => return None,
    })
}

fn list<'a>(core: &'a mut Core, call: &Call<'_>) -> Result<Option<&'a List>, Failure> {
    core.keyspace.read(&call.args[1])
}

fn push(core: &mut Core, call: &Call<'_>) -> Reply {
    let list = core.keyspace.create::<List>(&call.args[1])?;
    for item in &call.args[2..] {
        if call.name.starts_with('l') {
            list.push_front(item.clone());
        } else {
            list.push_back(item.clone());
        }
    }
    let length = list.len();
    core.keyspace.changed(&call.args[1]);
    Ok(Value::count(length))
}

fn pop(core: &mut Core, call: &Call<'_>) -> Reply {
    let count = match &call.args[2..] {
        [] => None,
        [count] => Some(not_negative(
            count,
            "value is out of range, must be positive",
        )?),
        _ => return Err(Failure::arity(call.name)),
    };
    let Some(list) = core.keyspace.write::<List>(&call.args[1])? else {
        return Ok(if count.is_some() {
            Value::NilArray
        } else {
            Value::Nil
        });
    };
    let mut popped = Vec::new();
    while popped.len() < count.unwrap_or(1) {
        let item = if call.name == "lpop" {
            list.pop_front()
        } else {
            list.pop_back()
        };
        let Some(item) = item else { break };
        popped.push(item);
    }
    if count != Some(0) {
        core.keyspace.changed(&call.args[1]);
    }
    Ok(match count {
        Some(_) => Value::bulks(popped),
        None => Value::optional(popped.pop()),
    })
}

fn not_negative(number: &[u8], message: &str) -> Result<usize, Failure> {
    // Every argument that is no number within the range gets the same error.
    let number = crate::arguments::strict_integer(number);
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| Failure::general(message))
}

fn remove(core: &mut Core, call: &Call<'_>) -> Reply {
    let count = integer(&call.args[2])?;
    let Some(list) = core.keyspace.write::<List>(&call.args[1])? else {
        return Ok(Value::Integer(0));
    };
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let places = list
        .iter()
        .enumerate()
        .filter(|(_, item)| **item == call.args[3]);
    let mut places: Vec<usize> = places.map(|(place, _)| place).collect();
    if count < 0 {
        places.drain(..places.len().saturating_sub(most));
    } else if count > 0 {
        places.truncate(most);
    }
    for place in places.iter().rev() {
        list.remove(*place);
    }
    if !places.is_empty() {
        core.keyspace.changed(&call.args[1]);
    }
    Ok(Value::count(places.len()))
}

fn positions(core: &mut Core, call: &Call<'_>) -> Reply {
    let (mut rank, mut count, mut most) = (1, None, 0);
    let mut options = call.args[3..].iter();
    while let Some(option) = options.next() {
        let value = options.next().ok_or_else(Failure::syntax)?;
        if is_word(option, "rank") {
            rank = integer(value)?;
            if rank == 0 {
                return Err(Failure::general(
                    "RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start \
                     from the end of the list",
                ));
            }
        } else if is_word(option, "count") {
            count = Some(not_negative(value, "COUNT can't be negative")?);
        } else if is_word(option, "maxlen") {
            most = not_negative(value, "MAXLEN can't be negative")?;
        } else {
            return Err(Failure::syntax());
        }
    }
    let empty = List::new();
    let list = list(core, call)?.unwrap_or(&empty);
    let wanted = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let before = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let most = if most == 0 { usize::MAX } else { most };
    let mut items: Box<dyn Iterator<Item = (usize, &Vec<u8>)>> = Box::new(list.iter().enumerate());
    if rank < 0 {
        items = Box::new(list.iter().enumerate().rev());
    }
    let found = items.take(most).filter(|(_, item)| **item == call.args[2]);
    let mut found = found
        .skip(before)
        .take(wanted)
        .map(|(place, _)| Value::count(place));
    Ok(match count {
        None => found.next().unwrap_or(Value::Nil),
        Some(_) => Value::Array(found.collect()),
    })
}
