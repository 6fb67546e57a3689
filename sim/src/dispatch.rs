//! The execution of a request: the checks of Redis' `processCommand`, in its order, then the command.

use std::time::Duration;

use tokio::time::Instant;

use crate::Value;
use crate::arguments::{is_word, text};
use crate::clients::{Blocked, Client};
use crate::commands::{Command, Lookup, table};
use crate::core::Call;
use crate::failure::Failure;
use crate::permissions::Denied;
use crate::server::{Fault, Inner};
use crate::{monitor, scripting, transactions};

/// Executes a request of a connection, or refuses it.
pub(crate) fn execute(inner: &mut Inner, client: u64, request: &[Vec<u8>]) -> Value {
    let core = inner.core();
    core.commands += 1;
    core.catch_up();
    let reply = checked(inner, client, request);
    let core = inner.core();
    if core.cluster.is_some() {
        let is_asking = is_word(&request[0], "asking");
        let state = core.client(client);
        state.is_asking &= is_asking || state.transaction.is_some();
    }
    if core.replicate() {
        let offset = core.offset;
        core.client(client).written = offset;
    }
    let delay = core
        .sentinel
        .as_ref()
        .map_or(Duration::ZERO, |sentinel| sentinel.delay);
    let is_greeting = request.first().is_some_and(|word| is_word(word, "hello"));
    if delay.is_zero() || client == Client::ADMINISTRATOR || !is_greeting {
        return reply;
    }
    let until = Instant::now() + delay;
    core.client(client).blocked = Some((until, Blocked::Moment(reply)));
    Value::Several(Vec::new())
}

fn checked(inner: &mut Inner, client: u64, request: &[Vec<u8>]) -> Value {
    let number = match table().find(request, inner.core().sentinel.is_some()) {
        Lookup::Found(number) => number,
        Lookup::Unknown => return refuse(inner, client, unknown(request)),
        Lookup::UnknownSubcommand(parent) => {
            let name = table().commands[parent].name;
            let sub = text(&request[1]);
            let failure = unknown_subcommand(&sub, &name.to_uppercase());
            return refuse(inner, client, failure);
        }
    };
    let command = &table().commands[number];
    if !command.takes(request.len()) {
        return refuse(inner, client, Failure::arity(command.name));
    }
    if let Err(failure) = check(inner, client, number, command, request) {
        if command.name != "exec" {
            return refuse(inner, client, failure);
        }
        inner.core().client(client).transaction = None;
        inner.core().keyspace.unwatch(client);
        if failure.is_redirect() {
            return failure.into();
        }
        let text = failure.into_text();
        let aborted = format!("EXECABORT Transaction discarded because of: {text}");
        return Value::Error(aborted);
    }
    let is_immediate =
        ["exec", "discard", "multi", "watch", "quit", "reset"].contains(&command.name);
    let core = inner.core();
    let is_dirty = core.keyspace.dirty.contains(&client);
    let transaction = &mut core.client(client).transaction;
    if let Some(transaction) = transaction.as_mut().filter(|_| !is_immediate) {
        // A command of a transaction that will not be executed is not queued.
        if !transaction.is_flawed && !is_dirty {
            transaction.queue.push((number, request.to_vec()));
        }
        return Value::Simple("QUEUED".into());
    }
    run(inner, client, number, request)
}

/// Executes a command that has passed its checks.
pub(crate) fn run(inner: &mut Inner, client: u64, number: usize, request: &[Vec<u8>]) -> Value {
    let command = &table().commands[number];
    let core = inner.core();
    let now = core.clock.now_ms();
    let state = core.client(client);
    let (database, protocol) = (state.database, state.protocol);
    core.keyspace.select(database, now);
    *core.calls.entry(command.name).or_default() += 1;
    monitor::feed(core, client, command, request);
    let call = Call {
        client,
        protocol,
        name: command.name,
        args: request,
    };
    match command.name {
        "exec" => return transactions::exec(inner, client),
        "eval" | "eval_ro" | "evalsha" | "evalsha_ro" => return scripting::eval(inner, &call),
        name if name.starts_with("script|") => return scripting::script(inner, &call),
        _ => {}
    }
    let reply = command.handler.map_or_else(
        || {
            let name = command.name;
            Err(Failure::general(format!(
                "the simulated server does not know how to execute '{name}'"
            )))
        },
        |handler| handler(core, &call),
    );
    reply.unwrap_or_else(Value::from)
}

fn check(
    inner: &mut Inner,
    client: u64,
    number: usize,
    command: &Command,
    request: &[Vec<u8>],
) -> Result<(), Failure> {
    if client == Client::ADMINISTRATOR {
        return Ok(());
    }
    let script_flags = scripting::declared_flags(inner, command.name, request);
    let core = inner.core();
    let fault = core.fault;
    let is_replica = core.is_replica();
    let is_out_of_memory = core.is_out_of_memory();
    let needs_pubsub = core.pubsub.is_subscribed(client);
    let state = core.client(client);
    let has_no_auth = command.has("no_auth");
    if state.user.is_none() && !has_no_auth {
        return Err(Failure::coded("NOAUTH Authentication required."));
    }
    let in_transaction = state.transaction.is_some();
    if in_transaction && command.has("no_multi") {
        return Err(Failure::general("Command not allowed inside a transaction"));
    }
    let protocol = state.protocol;
    let user = state.user.clone();
    // EXEC is judged by the commands that it would execute.
    let queue = state
        .transaction
        .as_ref()
        .filter(|_| command.name == "exec");
    let queued: Vec<&Command> = queue
        .map(|queue| queue.queue.iter())
        .into_iter()
        .flatten()
        .map(|(number, _)| &table().commands[*number])
        .collect();
    let is_write = script_flags.map_or(command.is_write, |flags| flags.writes)
        || queued.iter().any(|command| command.is_write);
    let denies_oom = script_flags.map_or(command.denies_oom, |flags| flags.denies_oom)
        || queued.iter().any(|command| command.denies_oom);
    let denies_loading =
        !command.has("loading") || queued.iter().any(|command| !command.has("loading"));
    if fault == Some(Fault::NoPermission) && !has_no_auth {
        return Err(Denied::Command.failure(command.name));
    }
    let user = user.filter(|_| !has_no_auth);
    core.permit(user.as_deref(), number, request)
        .map_err(|denied| denied.failure(command.name))?;
    if core.cluster.is_some() {
        let now = core.clock.now_ms();
        core.keyspace.select(0, now);
        let own = [(number, request)];
        // EXEC is routed by the commands in its queue.
        let state = core.client(client).transaction.as_mut();
        let queue = state.filter(|_| command.name == "exec");
        let queue = queue.map(|state| std::mem::take(&mut state.queue));
        let requests = queue.iter().flatten();
        let requests: Vec<_> = requests
            .map(|(number, words)| (*number, &**words))
            .collect();
        let requests = if queue.is_some() { &*requests } else { &own };
        let routed = core.route(client, command, requests, is_write);
        if let Some((state, queue)) = core.client(client).transaction.as_mut().zip(queue) {
            state.queue = queue;
        }
        routed?;
    }
    let leaves = ["exec", "discard", "quit", "reset"].contains(&command.name);
    if is_out_of_memory && (denies_oom || (in_transaction && !leaves)) {
        return Err(out_of_memory());
    }
    if is_replica && is_write {
        return Err(read_only());
    }
    let is_of_pubsub =
        command.name.ends_with("subscribe") || ["ping", "quit", "reset"].contains(&command.name);
    if needs_pubsub && protocol == 2 && !is_of_pubsub {
        return Err(Failure::general(format!(
            "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            command.name
        )));
    }
    if fault == Some(Fault::Loading) && denies_loading {
        let text = "LOADING Redis is loading the dataset in memory";
        return Err(Failure::coded(text));
    }
    if fault == Some(Fault::Busy) && !command.has("allow_busy") {
        let text = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
        return Err(Failure::coded(text));
    }
    Ok(())
}

/// Returns the error of a write while the memory is used up.
pub(crate) fn out_of_memory() -> Failure {
    Failure::coded("OOM command not allowed when used memory > 'maxmemory'.")
}

/// Returns the error of a write to a replica.
pub(crate) fn read_only() -> Failure {
    Failure::coded("READONLY You can't write against a read only replica.")
}

/// Returns the error of a subcommand that does not exist, or has other arguments.
pub(crate) fn unknown_subcommand(sub: &str, command: &str) -> Failure {
    Failure::general(format!("unknown subcommand '{sub}'. Try {command} HELP."))
}

/// Refuses a request; a transaction that it would have been part of is not executed.
fn refuse(inner: &mut Inner, client: u64, failure: Failure) -> Value {
    if let Some(transaction) = &mut inner.core().client(client).transaction {
        transaction.is_flawed = true;
    }
    failure.into()
}

fn unknown(request: &[Vec<u8>]) -> Failure {
    let mut args = String::new();
    for arg in &request[1..] {
        if args.len() >= 128 {
            break;
        }
        let shown: String = text(arg).chars().take(128 - args.len()).collect();
        args.push_str(&format!("'{shown}' "));
    }
    let name: String = text(&request[0]).chars().take(128).collect();
    Failure::general(format!(
        "unknown command '{name}', with args beginning with: {args}"
    ))
}
