//! The conversions of replies to the values that scripts see, and of the results of scripts to replies.

use mlua::{Lua, Value as LuaValue};

use crate::Value;
use crate::lua_errors::{coded, error_table};
use crate::value::double;

/// Converts a reply to the value that a script sees, in version 2 of the protocol.
pub(crate) fn to_lua(lua: &Lua, reply: Value) -> mlua::Result<LuaValue> {
    let list = |items: Vec<Value>| {
        let table = lua.create_table_with_capacity(items.len(), 0)?;
        for (place, item) in items.into_iter().enumerate() {
            table.raw_set(place + 1, to_lua(lua, item)?)?;
        }
        Ok(LuaValue::Table(table))
    };
    match reply {
        Value::Simple(text) => {
            let table = lua.create_table()?;
            table.raw_set("ok", text.as_ref())?;
            Ok(LuaValue::Table(table))
        }
        Value::Error(text) => Ok(LuaValue::Table(error_table(lua, &coded(&text))?)),
        #[expect(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
        Value::Integer(number) => Ok(LuaValue::Number(number as f64)),
        Value::Bulk(bytes) => Ok(LuaValue::String(lua.create_string(bytes)?)),
        Value::Nil | Value::NilArray => Ok(LuaValue::Boolean(false)),
        Value::Array(items) | Value::Set(items) | Value::Push(items) | Value::Several(items) => {
            list(items)
        }
        Value::Map(pairs) => list(pairs.into_iter().flat_map(<[Value; 2]>::from).collect()),
        Value::Double(number) => Ok(LuaValue::String(lua.create_string(double(number))?)),
        Value::Scored(pairs) => {
            let items = pairs.into_iter();
            let items =
                items.flat_map(|(member, score)| [Value::Bulk(member), Value::Double(score)]);
            list(items.collect())
        }
        Value::Verbatim(text) => Ok(LuaValue::String(lua.create_string(text)?)),
    }
}

/// Converts a script's result to a reply.
pub(crate) fn to_reply(result: LuaValue) -> mlua::Result<Value> {
    Ok(match result {
        LuaValue::String(text) => Value::bulk(text.as_bytes()),
        LuaValue::Boolean(true) => Value::Integer(1),
        LuaValue::Integer(number) => Value::Integer(number),
        LuaValue::Number(number) => Value::Integer(truncated(number)),
        LuaValue::Table(table) => {
            if let LuaValue::String(text) = table.raw_get("err")? {
                return Ok(Value::Error(text.to_string_lossy()));
            }
            if let LuaValue::String(text) = table.raw_get("ok")? {
                return Ok(Value::Simple(text.to_string_lossy().into()));
            }
            if let LuaValue::Number(number) = table.raw_get("double")? {
                return Ok(Value::Double(number));
            }
            let mut items = Vec::new();
            loop {
                match table.raw_get(items.len() + 1)? {
                    LuaValue::Nil => break,
                    item => items.push(to_reply(item)?),
                }
            }
            Value::Array(items)
        }
        _ => Value::Nil,
    })
}

/// Converts a number as C does: a number out of range becomes the least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the range is checked"
)]
fn truncated(number: f64) -> i64 {
    if (i64::MIN as f64..i64::MAX as f64).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}
