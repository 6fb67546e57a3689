//! Commands on sets.

use std::collections::BTreeSet;

use crate::Value;
use crate::commands::Handler;

type Set = BTreeSet<Vec<u8>>;

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "sadd" => |core, call| {
            let set: &mut Set = core.keyspace.create(&call.args[1])?;
            let members = call.args[2..].iter();
            let added = members
                .filter(|member| set.insert((*member).clone()))
                .count();
            if added > 0 {
                core.keyspace.changed(&call.args[1]);
            }
            Ok(Value::count(added))
        },
        "srem" => |core, call| {
            let Some(set) = core.keyspace.write::<Set>(&call.args[1])? else {
                return Ok(Value::Integer(0));
            };
            let removed = call.args[2..]
                .iter()
                .filter(|member| set.remove(*member))
                .count();
            if removed > 0 {
                core.keyspace.changed(&call.args[1]);
            }
            Ok(Value::count(removed))
        },
        "scard" => |core, call| {
            let set: Option<&Set> = core.keyspace.read(&call.args[1])?;
            Ok(Value::count(set.map_or(0, Set::len)))
        },
        "sismember" => |core, call| {
            let set: Option<&Set> = core.keyspace.read(&call.args[1])?;
            let is_in = set.is_some_and(|set| set.contains(&call.args[2]));
            Ok(Value::Integer(is_in.into()))
        },
        "smembers" => |core, call| {
            let set: Option<&Set> = core.keyspace.read(&call.args[1])?;
            let members = set.into_iter().flatten().map(Value::bulk);
            Ok(Value::Set(members.collect()))
        },
        _ => return None,
    })
}
