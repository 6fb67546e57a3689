//! The table `redis`, through which a script reaches the server.

use std::sync::Arc;

use mlua::{Lua, MultiValue, Table, Value as LuaValue};

use crate::failure::Failure;
use crate::lua_errors::{ScriptError, coded, error_table};
use crate::lua_values::to_lua;
use crate::script_run::{Slot, command};
use crate::value::double;
use crate::{Value, info};

/// Makes the table `redis`.
pub(crate) fn table(lua: &Lua, run: &Slot) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let slot = Arc::clone(run);
        let function = lua.create_function(move |lua, arguments: MultiValue| {
            let reply = arguments_of(&arguments)
                .map_or_else(Value::from, |arguments| command(&slot, &arguments));
            match reply {
                Value::Error(text) if raises => {
                    Err(mlua::Error::external(ScriptError::Table(coded(&text))))
                }
                reply => to_lua(lua, reply),
            }
        })?;
        redis.raw_set(name, function)?;
    }
    let error_reply =
        lua.create_function(
            |lua, arguments: MultiValue| match single_string(&arguments) {
                Some(text) => error_table(lua, &coded(text.strip_prefix('-').unwrap_or(&text))),
                None => error_table(lua, "ERR wrong number or type of arguments"),
            },
        )?;
    redis.raw_set("error_reply", error_reply)?;
    let status_reply = lua.create_function(|lua, arguments: MultiValue| {
        let Some(text) = single_string(&arguments) else {
            return error_table(lua, "ERR wrong number or type of arguments");
        };
        let table = lua.create_table()?;
        table.raw_set("ok", text)?;
        Ok(table)
    })?;
    redis.raw_set("status_reply", status_reply)?;
    let sha1hex = lua.create_function(|_, text: mlua::LuaString| {
        Ok(sha1_smol::Sha1::from(&text.as_bytes()[..])
            .digest()
            .to_string())
    })?;
    redis.raw_set("sha1hex", sha1hex)?;
    redis.raw_set("log", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    redis.raw_set("set_repl", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    let replicate = lua.create_function(|_, _: MultiValue| Ok(true))?;
    redis.raw_set("replicate_commands", replicate)?;
    let set_protocol = lua.create_function(|_, version: i64| match version {
        2 => Ok(()),
        _ => {
            let text = "ERR the simulated server's scripts see the second protocol only";
            Err(mlua::Error::external(ScriptError::Table(text.to_owned())))
        }
    })?;
    redis.raw_set("setresp", set_protocol)?;
    let constants = [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", 3),
        ("REDIS_VERSION_NUM", 0x0007_000f),
    ];
    for (name, value) in constants {
        redis.raw_set(name, value)?;
    }
    redis.raw_set("REDIS_VERSION", info::VERSION)?;
    Ok(redis)
}

fn single_string(arguments: &MultiValue) -> Option<String> {
    match (arguments.len(), arguments.front()) {
        (1, Some(LuaValue::String(text))) => Some(text.to_string_lossy()),
        _ => None,
    }
}

fn arguments_of(arguments: &MultiValue) -> Result<Vec<Vec<u8>>, Failure> {
    if arguments.is_empty() {
        return Err(Failure::general(
            "Please specify at least one argument for this redis lib call",
        ));
    }
    let bytes = arguments.iter().map(|argument| match argument {
        LuaValue::String(text) => Some(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Some(number.to_string().into_bytes()),
        LuaValue::Number(number) => Some(double(*number).into_bytes()),
        _ => None,
    });
    bytes.collect::<Option<_>>().ok_or_else(|| {
        Failure::general("Lua redis lib command arguments must be strings or integers")
    })
}
