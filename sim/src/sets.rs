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
        "smembers" => |core, call| {
            let set: Option<&Set> = core.keyspace.read(&call.args[1])?;
            let members = set.into_iter().flatten().map(Value::bulk);
            Ok(Value::Set(members.collect()))
        },
        _ => return None,
    })
}
