//! The Lua interpreter, and the environment that Redis gives to scripts.

use std::sync::Arc;

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue};

use crate::core::Core;
use crate::lua_errors::{located, on_error, text_of};
use crate::lua_values::to_reply;
use crate::script_run::{Run, Slot, lock};
use crate::{Value, redis_library, struct_pack};

/// A Lua state with the additions of Redis.
pub(crate) struct Interpreter {
    lua: Lua,
    /// The state that the running script may reach. A function in Lua cannot borrow it, so it is stored here for as long as the script
    /// runs.
    run: Slot,
    /// The globals, without the protection that scripts see.
    globals: Table,
    /// The environment of scripts: a table that reads the globals and refuses writes.
    environment: Table,
    xpcall: Function,
    on_error: Function,
}

impl Interpreter {
    pub(crate) fn new() -> Self {
        Self::build().expect("the environment is made of constants")
    }

    fn build() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        // Lua does not catch panics: pcall and xpcall have to be the interpreter's own, whose stack has no extra levels.
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(libraries, options)?;
        let run: Slot = Arc::default();
        let globals = lua.globals();
        for removed in [
            "dofile", "loadfile", "print", "newproxy", "module", "require", "package",
        ] {
            globals.raw_set(removed, LuaValue::Nil)?;
        }
        let math: Table = globals.raw_get("math")?;
        // A script that draws random numbers would differ each time.
        math.raw_set("random", LuaValue::Nil)?;
        math.raw_set("randomseed", LuaValue::Nil)?;
        globals.raw_set("redis", redis_library::table(&lua, &run)?)?;
        globals.raw_set("struct", struct_pack::table(&lua)?)?;
        let xpcall: Function = globals.raw_get("xpcall")?;
        let pcall: Function = globals.raw_get("pcall")?;
        // As in Redis' own pcall, an error that is a table is caught as its text.
        let caught = lua.create_function(|lua, mut values: MultiValue| {
            if let (Some(LuaValue::Boolean(false)), Some(error)) = (values.front(), values.get(1)) {
                let text = match error {
                    LuaValue::Error(error) => {
                        LuaValue::String(lua.create_string(text_of(error).0)?)
                    }
                    LuaValue::Table(table) => table.raw_get("err")?,
                    _ => LuaValue::Nil,
                };
                if text.is_string() {
                    values.truncate(1);
                    values.push_back(text);
                }
            }
            Ok(values)
        })?;
        let wrap = "local pcall, caught = ... return function(...) return caught(pcall(...)) end";
        let wrapped: Function = lua.load(wrap).call((pcall, caught))?;
        globals.raw_set("pcall", wrapped)?;
        let on_error = lua.create_function(on_error)?;
        let environment = environment(&lua, &globals)?;
        Ok(Self {
            lua,
            run,
            globals,
            environment,
            xpcall,
            on_error,
        })
    }

    /// Compiles a script. The error is the compiler's message.
    pub(crate) fn compile(&self, body: &[u8]) -> Result<Function, String> {
        let chunk = self.lua.load(body).set_name("@user_script");
        let chunk = chunk.set_mode(mlua::chunk::ChunkMode::Text);
        let function = chunk
            .set_environment(self.environment.clone())
            .into_function();
        function.map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            other => other.to_string(),
        })
    }

    /// Executes a script, and returns the core that it was lent. The name is its hash.
    pub(crate) fn execute(
        &self,
        run: Run,
        function: &Function,
        name: &str,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
    ) -> (Box<Core>, Value) {
        *lock(&self.run) = Some(Box::new(run));
        let reply = self.reply(function, name, keys, arguments);
        let run = lock(&self.run).take();
        let core = run.expect("it is taken nowhere else").core;
        let reply = reply.unwrap_or_else(|error| {
            let text = format!("ERR Error running script {name}, {error}");
            Value::Error(text)
        });
        (core, reply)
    }

    fn reply(
        &self,
        function: &Function,
        name: &str,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
    ) -> mlua::Result<Value> {
        self.globals.raw_set("KEYS", self.strings(keys)?)?;
        self.globals.raw_set("ARGV", self.strings(arguments)?)?;
        let (is_done, result): (bool, LuaValue) = self.xpcall.call((function, &self.on_error))?;
        if is_done {
            return to_reply(result);
        }
        let LuaValue::Table(error) = result else {
            return Ok(Value::Error(format!(
                "ERR Error running script {name}, execution failure"
            )));
        };
        let field = |field| -> mlua::Result<Option<String>> {
            let text: Option<mlua::LuaString> = error.raw_get(field)?;
            Ok(text.map(|text| text.to_string_lossy()))
        };
        let mut text = field("err")?.unwrap_or_default();
        if let (Some(source), Some(line)) = (field("source")?, field("line")?) {
            text.push_str(&format!(" script: {name}, on {source}:{line}."));
        }
        Ok(Value::Error(text))
    }

    fn strings(&self, items: &[Vec<u8>]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(items.len(), 0)?;
        for (place, item) in items.iter().enumerate() {
            table.raw_set(place + 1, self.lua.create_string(item)?)?;
        }
        Ok(table)
    }
}

fn environment(lua: &Lua, globals: &Table) -> mlua::Result<Table> {
    let missing = lua.create_function(|lua, (_, name): (LuaValue, LuaValue)| {
        let name = name.to_string()?;
        let text = format!("Script attempted to access nonexistent global variable '{name}'");
        Err::<(), _>(located(lua, &text))
    })?;
    let protected = lua.create_table()?;
    protected.raw_set("__index", missing)?;
    let refused = lua.create_function(|lua, _: MultiValue| {
        Err::<(), _>(located(lua, "Attempt to modify a readonly table"))
    })?;
    protected.raw_set("__newindex", &refused)?;
    globals.set_metatable(Some(protected))?;
    let environment = lua.create_table()?;
    let protection = lua.create_table()?;
    protection.raw_set("__index", globals)?;
    protection.raw_set("__newindex", refused)?;
    protection.raw_set("__metatable", false)?;
    environment.set_metatable(Some(protection))?;
    Ok(environment)
}
