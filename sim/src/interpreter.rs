//! The Lua interpreter: the environment that Redis gives to scripts, and the conversions between its values and replies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue};

use crate::Value;
use crate::commands::{Lookup, table};
use crate::core::{Call, Core};
use crate::failure::Failure;
use crate::server::Fault;
use crate::value::double;
use crate::{dispatch, info, struct_pack};

/// A Lua state with what Redis puts into it.
pub(crate) struct Interpreter {
    lua: Lua,
    /// What the running script may reach. A function in Lua cannot borrow it, so it lies here for as long as the script runs.
    run: Slot,
    /// The globals, without the protection that scripts see.
    globals: Table,
    /// What scripts see: reads the globals, and refuses to be written to.
    environment: Table,
    xpcall: Function,
    on_error: Function,
}

type Slot = Arc<Mutex<Option<Box<Run>>>>;

/// One execution of a script.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) core: Box<Core>,
    pub(crate) client: u64,
    pub(crate) is_read_only: bool,
    /// Its own flags say that it may write however little memory there is.
    pub(crate) may_exceed_memory: bool,
    /// There was no memory when it began.
    pub(crate) is_out_of_memory: bool,
    pub(crate) has_written: bool,
}

/// An error table that a function of Redis raises: mlua can raise no table, so it is made of this where it is caught.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl Interpreter {
    pub(crate) fn new() -> Self {
        Self::build().expect("the environment is made of constants")
    }

    fn build() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        // Panics are not caught by Lua: pcall and xpcall are to be the interpreter's own, whose stack has no more levels.
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
        // A script that draws at random would be another one each time.
        math.raw_set("random", LuaValue::Nil)?;
        math.raw_set("randomseed", LuaValue::Nil)?;
        globals.raw_set("redis", redis_table(&lua, &run)?)?;
        globals.raw_set("struct", struct_pack::table(&lua)?)?;
        let os = lua.create_table()?;
        let slot = Arc::clone(&run);
        let clock = lua.create_function(move |_, ()| {
            let run = lock(&slot);
            let micros = run.as_ref().map_or(0, |run| run.core.clock.now_us());
            #[expect(
                clippy::cast_precision_loss,
                reason = "seconds as a number with a fraction"
            )]
            Ok(micros as f64 / 1e6)
        })?;
        os.raw_set("clock", clock)?;
        globals.raw_set("os", os)?;
        let xpcall: Function = globals.raw_get("xpcall")?;
        let pcall: Function = globals.raw_get("pcall")?;
        let caught = lua.create_function(|lua, mut values: MultiValue| {
            if let Some(LuaValue::Error(error)) = values.get(1) {
                let table = error_table(lua, &text_of(error))?;
                values.truncate(1);
                values.push_back(LuaValue::Table(table));
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

    /// Compiles a script. The error is the compiler's.
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

fn lock(slot: &Slot) -> MutexGuard<'_, Option<Box<Run>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

fn environment(lua: &Lua, globals: &Table) -> mlua::Result<Table> {
    let missing = lua.create_function(|lua, (_, name): (LuaValue, LuaValue)| {
        let name = name.to_string()?;
        let text = format!("Script attempted to access nonexistent global variable '{name}'");
        Err::<(), _>(located(lua, &text))
    })?;
    let protected = lua.create_table()?;
    protected.raw_set("__index", missing)?;
    globals.set_metatable(Some(protected))?;
    let refused = lua.create_function(|lua, _: MultiValue| {
        Err::<(), _>(located(lua, "Attempt to modify a readonly table"))
    })?;
    let environment = lua.create_table()?;
    let protection = lua.create_table()?;
    protection.raw_set("__index", globals)?;
    protection.raw_set("__newindex", refused)?;
    protection.raw_set("__metatable", false)?;
    environment.set_metatable(Some(protection))?;
    globals.raw_set("_G", &environment)?;
    Ok(environment)
}

/// An error whose text begins with the line of the script that has caused it.
fn located(lua: &Lua, text: &str) -> mlua::Error {
    let place = lua.inspect_stack(1, |debug| {
        let source = debug.source();
        let line = debug.current_line()?;
        Some(format!("{}:{line}: ", source.short_src.as_deref()?))
    });
    let place = place.flatten().unwrap_or_default();
    mlua::Error::external(Raised(format!("ERR {place}{text}")))
}

/// The error's table, with where in the script it was raised.
fn on_error(lua: &Lua, error: LuaValue) -> mlua::Result<Table> {
    let table = match &error {
        LuaValue::Table(table) => table.clone(),
        LuaValue::Error(error) => error_table(lua, &text_of(error))?,
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
    // The function that raised it may be one of Redis or of Lua itself: the script is whoever has called that.
    let mut levels = (1..).map_while(place);
    let found = levels.find(|(is_native, ..)| !is_native);
    if let Some((_, Some(source), line)) = found {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(table)
}

fn text_of(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => text_of(cause),
        mlua::Error::RuntimeError(text) => format!("ERR {text}"),
        other => other
            .downcast_ref::<Raised>()
            .map_or_else(|| format!("ERR {other}"), |raised| raised.0.clone()),
    }
}

fn error_table(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(table)
}

fn redis_table(lua: &Lua, run: &Slot) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let slot = Arc::clone(run);
        let function = lua.create_function(move |lua, arguments: MultiValue| {
            let reply = arguments_of(&arguments)
                .map_or_else(Value::from, |arguments| command(&slot, &arguments));
            match reply {
                Value::Error(text) if raises => Err(mlua::Error::external(Raised(coded(&text)))),
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
            Err(mlua::Error::external(Raised(text.to_owned())))
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

/// An error's text has a code; one of a single word gets the usual one.
fn coded(text: &str) -> String {
    let text = text.trim_matches(['\r', '\n']);
    if text.contains(' ') {
        text.to_owned()
    } else {
        format!("ERR {text}")
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

/// Executes a command for the running script: the checks of Redis' `scriptCall`, in its order.
fn command(slot: &Slot, request: &[Vec<u8>]) -> Value {
    let mut run = lock(slot);
    let Some(run) = run.as_mut() else {
        let text = "redis.call/pcall can only be called inside a script invocation";
        return Failure::general(text).into();
    };
    run.command(request).unwrap_or_else(Value::from)
}

impl Run {
    fn command(&mut self, request: &[Vec<u8>]) -> Result<Value, Failure> {
        let Lookup::Found(number) = table().find(request) else {
            return Err(Failure::general("Unknown Redis command called from script"));
        };
        let command = &table().commands[number];
        if !command.takes(request.len()) {
            return Err(Failure::general(
                "Wrong number of args calling Redis command from script",
            ));
        }
        if command.has("noscript") {
            return Err(Failure::general(
                "This Redis command is not allowed from script",
            ));
        }
        let core = &mut self.core;
        let client = core.client(self.client);
        let (database, user) = (client.database, client.user.clone());
        if self.client != crate::clients::Client::ADMINISTRATOR
            && let Some(user) = user.and_then(|user| core.users.get(&user))
        {
            user.check(number, request)
                .map_err(|denied| Failure::general(denied.in_script()))?;
        }
        // PUBLISH is not a write, but is replicated like one.
        let may_replicate = command.name.ends_with("publish") && command.has("pubsub");
        if self.is_read_only && (command.is_write || may_replicate) {
            return Err(Failure::general(
                "Write commands are not allowed from read-only scripts.",
            ));
        }
        let is_first_write = command.is_write && !self.has_written;
        if is_first_write && core.fault == Some(Fault::ReadOnly) {
            return Err(dispatch::read_only());
        }
        let is_refused = self.is_out_of_memory && !self.may_exceed_memory && !self.has_written;
        if is_refused && command.denies_oom {
            return Err(dispatch::out_of_memory());
        }
        self.has_written |= command.is_write;
        let now = core.keyspace.now();
        core.keyspace.select(database, now);
        let call = Call {
            client: self.client,
            protocol: 2,
            name: command.name,
            args: request,
            in_script: true,
        };
        let Some(handler) = command.handler else {
            let name = command.name;
            return Err(Failure::general(format!(
                "the simulated server does not know how to execute '{name}'"
            )));
        };
        handler(core, &call)
    }
}

/// A reply as a script sees it, in the second protocol.
fn to_lua(lua: &Lua, reply: Value) -> mlua::Result<LuaValue> {
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

/// A script's result as a reply.
fn to_reply(result: LuaValue) -> mlua::Result<Value> {
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

/// As C converts: what is out of range is the least number.
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
