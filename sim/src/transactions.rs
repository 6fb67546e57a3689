//! Transactions: the commands that are queued between `MULTI` and `EXEC`, and the keys that are watched before.

use crate::Value;
use crate::commands::{Handler, table};
use crate::dispatch;
use crate::failure::Failure;
use crate::server::Inner;

/// The commands that a connection has queued.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// The numbers of the commands, and the requests.
    pub(crate) queue: Vec<(usize, Vec<Vec<u8>>)>,
    /// Whether a request was refused when it was to be queued.
    pub(crate) is_flawed: bool,
}

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "multi" => |core, call| {
            let client = core.client(call.client);
            if client.transaction.is_some() {
                return Err(Failure::general("MULTI calls can not be nested"));
            }
            client.transaction = Some(Transaction::default());
            Ok(Value::OK)
        },
        "discard" => |core, call| {
            if core.client(call.client).transaction.take().is_none() {
                return Err(Failure::general("DISCARD without MULTI"));
            }
            core.keyspace.unwatch(call.client);
            Ok(Value::OK)
        },
        "watch" => |core, call| {
            if core.client(call.client).transaction.is_some() {
                return Err(Failure::general("WATCH inside MULTI is not allowed"));
            }
            for key in &call.args[1..] {
                core.keyspace.watch(call.client, key);
            }
            Ok(Value::OK)
        },
        "unwatch" => |core, call| {
            core.keyspace.unwatch(call.client);
            Ok(Value::OK)
        },
        _ => return None,
    })
}

/// Executes the queued commands, unless a watched key has changed or expired.
pub(crate) fn exec(inner: &mut Inner, client: u64) -> Value {
    let core = inner.core();
    let Some(transaction) = core.client(client).transaction.take() else {
        return Failure::general("EXEC without MULTI").into();
    };
    let has_changed =
        core.keyspace.dirty.contains(&client) || core.keyspace.has_expired_watched(client);
    core.keyspace.unwatch(client);
    if transaction.is_flawed {
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return Value::Error(text.to_owned());
    }
    if has_changed {
        return Value::NilArray;
    }
    let mut replies = Vec::with_capacity(transaction.queue.len());
    core.is_in_exec = true;
    for (number, request) in transaction.queue {
        let core = inner.core();
        let user = core.client(client).user.clone();
        let user = user.filter(|_| !table().commands[number].has("no_auth"));
        replies.push(match core.permit(user.as_deref(), number, &request).err() {
            Some(denied) => denied.since_queued().into(),
            None => dispatch::run(inner, client, number, &request),
        });
    }
    inner.core().is_in_exec = false;
    Value::Array(replies)
}
