//! `MONITOR`: the requests that the server executes, as they are shown to other connections.

use crate::Value;
use crate::commands::{Command, Handler};
use crate::core::Core;

pub(crate) fn handler(name: &str) -> Option<Handler> {
    (name == "monitor").then_some(|core, call| {
        core.monitors.insert(call.client);
        Ok(Value::OK)
    })
}

/// Sends a request to the monitoring connections. Commands of administrators and passwords are not shown.
pub(crate) fn feed(core: &mut Core, client: u64, command: &Command, request: &[Vec<u8>]) {
    let is_hidden = command.has("admin") || ["auth", "hello"].contains(&command.name);
    if core.monitors.is_empty() || is_hidden {
        return;
    }
    let now = core.clock.now_us();
    let (seconds, micros) = (now / 1_000_000, now % 1_000_000);
    let database = core.client(client).database;
    let mut line = format!(
        "{seconds}.{micros:06} [{database} 127.0.0.1:{}]",
        30000 + client
    );
    for word in request {
        line.push_str(&format!(" \"{}\"", escaped(word)));
    }
    let line = Value::Simple(line.into());
    for id in core.monitors.clone() {
        let client = core.client(id);
        client.outbox.send(&line, client.protocol);
    }
}

/// Escapes unprintable bytes, and quotes, as Redis does.
fn escaped(word: &[u8]) -> String {
    let mut text = String::new();
    for &byte in word {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}
