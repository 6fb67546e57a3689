//! Scripts: the cache of compiled scripts, and the commands that execute them.

use std::collections::BTreeMap;

use mlua::Function;

use crate::Value;
use crate::arguments::{integer, is_word, text};
use crate::clients::Client;
use crate::cluster_slots::slot_of;
use crate::core::Call;
use crate::failure::{Failure, Reply};
use crate::interpreter::Interpreter;
use crate::script_run::Run;
use crate::server::Inner;

/// The scripts that the server knows, by their hashes.
pub(crate) struct Scripts {
    interpreter: Interpreter,
    known: BTreeMap<String, Script>,
}

#[derive(Clone)]
struct Script {
    function: Function,
    /// The flags that the script's first line declares; `None` without such a line.
    flags: Option<ScriptFlags>,
}

/// The declarations of a script's first line.
#[derive(Clone, Copy, Debug, Default)]
struct ScriptFlags {
    no_writes: bool,
    allow_oom: bool,
    no_cluster: bool,
    allow_cross_slot: bool,
}

/// The properties of a command that its script declares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    pub(crate) writes: bool,
    pub(crate) denies_oom: bool,
}

impl Scripts {
    pub(crate) const fn new(interpreter: Interpreter) -> Self {
        Self {
            interpreter,
            known: BTreeMap::new(),
        }
    }

    pub(crate) fn flush(&mut self) {
        self.known.clear();
    }

    /// Compiles a script unless it is known, and returns its hash.
    fn load(&mut self, body: &[u8]) -> Result<String, Failure> {
        let hash = sha1_smol::Sha1::from(body).digest().to_string();
        if self.known.contains_key(&hash) {
            return Ok(hash);
        }
        let (flags, length) = first_line(body)?;
        let function = self.interpreter.compile(&body[length..]).map_err(|error| {
            Failure::general(format!("Error compiling script (new function): {error}"))
        })?;
        self.known.insert(hash.clone(), Script { function, flags });
        Ok(hash)
    }
}

/// Reads the first line of a script, and its length without the line's end.
fn first_line(body: &[u8]) -> Result<(Option<ScriptFlags>, usize), Failure> {
    if !body.starts_with(b"#!") {
        return Ok((None, 0));
    }
    let end = body.iter().position(|&byte| byte == b'\n');
    let end = end.ok_or_else(|| Failure::general("Invalid script shebang"))?;
    let line = text(&body[..end]);
    let mut words = line.split_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        let message = format!("Unexpected engine in script shebang: {engine}");
        return Err(Failure::general(message));
    }
    let mut flags = ScriptFlags::default();
    for word in words {
        let Some(names) = word.strip_prefix("flags=") else {
            return Err(Failure::general(format!(
                "Unknown lua shebang option: {word}"
            )));
        };
        for name in names.split(',') {
            match name {
                "no-writes" => flags.no_writes = true,
                "allow-oom" => flags.allow_oom = true,
                "no-cluster" => flags.no_cluster = true,
                "allow-cross-slot-keys" => flags.allow_cross_slot = true,
                "allow-stale" => {}
                _ => {
                    let message = format!("Unexpected flag in script shebang: {name}");
                    return Err(Failure::general(message));
                }
            }
        }
    }
    Ok((Some(flags), end))
}

/// Returns the declarations of a request's script, if the request executes one that declares anything.
pub(crate) fn declared_flags(inner: &Inner, name: &str, request: &[Vec<u8>]) -> Option<Declared> {
    let flags = match name {
        "eval" | "eval_ro" => first_line(&request[1]).ok()?.0?,
        "evalsha" | "evalsha_ro" => {
            let hash = text(&request[1]).to_ascii_lowercase();
            inner.scripts.known.get(&hash)?.flags?
        }
        _ => return None,
    };
    Some(Declared {
        writes: !flags.no_writes,
        denies_oom: !flags.no_writes && !flags.allow_oom,
    })
}

/// Executes `EVAL` and its variants.
pub(crate) fn eval(inner: &mut Inner, call: &Call<'_>) -> Value {
    prepared(inner, call).unwrap_or_else(Value::from)
}

fn prepared(inner: &mut Inner, call: &Call<'_>) -> Reply {
    let by_hash = call.name.starts_with("evalsha");
    let no_script = || Failure::coded("NOSCRIPT No matching script. Please use EVAL.");
    if by_hash && call.args[1].len() != 40 {
        return Err(no_script());
    }
    let count = integer(&call.args[2])?;
    let arguments = &call.args[3..];
    let Ok(count) = usize::try_from(count) else {
        return Err(Failure::general("Number of keys can't be negative"));
    };
    if count > arguments.len() {
        return Err(Failure::general(
            "Number of keys can't be greater than number of args",
        ));
    }
    let hash = if by_hash {
        text(&call.args[1]).to_ascii_lowercase()
    } else {
        inner.scripts.load(&call.args[1])?
    };
    let script = inner
        .scripts
        .known
        .get(&hash)
        .cloned()
        .ok_or_else(no_script)?;
    let cached = inner.scripts.known.len();
    let is_read_only = call.name.ends_with("_ro");
    let is_administrator = call.client == Client::ADMINISTRATOR;
    let core = inner.core();
    core.cached_scripts = cached;
    let is_out_of_memory = core.is_out_of_memory() && !is_administrator;
    if let Some(flags) = script.flags {
        if flags.no_cluster && core.cluster.is_some() && !is_administrator {
            let text = "Can not run script on cluster, 'no-cluster' flag is set.";
            return Err(Failure::general(text));
        }
        if !flags.no_writes && core.is_replica() && !is_administrator {
            let text = "READONLY Can not run script with write flag on readonly replica";
            return Err(Failure::coded(text));
        }
        if !flags.no_writes && is_read_only {
            let text = "Can not execute a script with write flag using *_ro command.";
            return Err(Failure::general(text));
        }
    }
    let has_one_slot = script.flags.is_some_and(|flags| !flags.allow_cross_slot);
    let flags = script.flags.unwrap_or_default();
    let mut core = inner.core.take().expect("no other script runs");
    // SELECT in a script lasts until the script ends.
    let database = core.client(call.client).database;
    let run = Run {
        core,
        client: call.client,
        is_read_only: is_read_only || flags.no_writes,
        may_exceed_memory: flags.allow_oom,
        is_out_of_memory,
        has_written: false,
        has_one_slot,
        slot: arguments[..count].first().map(slot_of),
    };
    let (keys, arguments) = arguments.split_at(count);
    let interpreter = &inner.scripts.interpreter;
    let (mut core, reply) = interpreter.execute(run, &script.function, &hash, keys, arguments);
    core.client(call.client).database = database;
    inner.core = Some(core);
    Ok(reply)
}

/// Executes the subcommands of `SCRIPT`.
pub(crate) fn script(inner: &mut Inner, call: &Call<'_>) -> Value {
    let reply = match call.name {
        "script|load" => inner.scripts.load(&call.args[2]).map(Value::bulk),
        "script|exists" => {
            let hashes = call.args[2..].iter();
            let known = hashes.map(|hash| inner.scripts.known.contains_key(&text(hash)));
            Ok(Value::Array(
                known.map(|known| Value::Integer(known.into())).collect(),
            ))
        }
        "script|flush" => match &call.args[2..] {
            [] => Ok(Value::OK),
            [mode] if is_word(mode, "sync") || is_word(mode, "async") => Ok(Value::OK),
            _ => Err(Failure::general(
                "SCRIPT FLUSH only support SYNC|ASYNC option",
            )),
        },
        "script|kill" => Err(Failure::coded("NOTBUSY No scripts in execution right now.")),
        _ => Err(Failure::general(
            "the simulated server does not debug scripts",
        )),
    };
    if call.name == "script|flush" && reply.is_ok() {
        inner.scripts.flush();
    }
    inner.core().cached_scripts = inner.scripts.known.len();
    reply.unwrap_or_else(Value::from)
}
