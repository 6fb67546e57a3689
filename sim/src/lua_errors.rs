//! Errors on their way through Lua: Redis turns them into tables that name the place in the script.

use mlua::{Lua, Table, Value as LuaValue};

/// The error that a function of Redis raises. mlua can raise no table, so the code that catches this error makes the table.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    /// The text of a table, with a code.
    #[error("{0}")]
    Table(String),
    /// A plain text.
    #[error("{0}")]
    Text(String),
}

/// Returns the text with a code: a text of a single word gets the usual one.
pub(crate) fn coded(text: &str) -> String {
    let text = text.trim_matches(['\r', '\n']);
    if text.contains(' ') {
        text.to_owned()
    } else {
        format!("ERR {text}")
    }
}

/// Returns an error whose text begins with the line of the script that caused it.
pub(crate) fn located(lua: &Lua, text: &str) -> mlua::Error {
    let place = lua.inspect_stack(1, |debug| {
        let source = debug.source();
        let line = debug.current_line()?;
        Some(format!("{}:{line}: ", source.short_src.as_deref()?))
    });
    let place = place.flatten().unwrap_or_default();
    mlua::Error::external(ScriptError::Text(format!("{place}{text}")))
}

/// Returns the table of an error, with the place in the script where it was raised.
pub(crate) fn on_error(lua: &Lua, error: LuaValue) -> mlua::Result<Table> {
    let table = match &error {
        LuaValue::Table(table) => table.clone(),
        LuaValue::Error(error) => match text_of(error) {
            (text, true) => error_table(lua, &text)?,
            (text, false) => error_table(lua, &format!("ERR {text}"))?,
        },
        LuaValue::String(text) => {
            let table = lua.create_table()?;
            let text = [b"ERR ", &text.as_bytes()[..]].concat();
            table.raw_set("err", lua.create_string(text)?)?;
            table
        }
        other => error_table(lua, &format!("ERR {}", other.to_string()?))?,
    };
    let place = |level| {
        lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let line = debug
                .current_line()
                .map_or(-1, |line| i64::try_from(line).unwrap_or(-1));
            (
                source.what == "C",
                source.source.map(|source| source.into_owned()),
                line,
            )
        })
    };
    // The function that raised it may be one of Redis or of Lua itself: the script is the first caller that is not native.
    let mut levels = (1..).map_while(place);
    let found = levels.find(|(is_native, ..)| !is_native);
    if let Some((_, Some(source), line)) = found {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(table)
}

/// Returns the text of an error, and whether it belongs to a table.
pub(crate) fn text_of(error: &mlua::Error) -> (String, bool) {
    match error {
        mlua::Error::CallbackError { cause, .. } => text_of(cause),
        mlua::Error::RuntimeError(text) => (text.clone(), false),
        other => match other.downcast_ref::<ScriptError>() {
            Some(ScriptError::Table(text)) => (text.clone(), true),
            Some(ScriptError::Text(text)) => (text.clone(), false),
            None => (other.to_string(), false),
        },
    }
}

pub(crate) fn error_table(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(table)
}
