//! Settings, and the commands that read and change them.

use std::collections::BTreeMap;

use crate::Value;
use crate::arguments::text;
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::glob;

/// The settings of a server by their names.
#[derive(Debug)]
pub(crate) struct Configuration(BTreeMap<String, String>);

impl Configuration {
    pub(crate) fn new() -> Self {
        let settings = DEFAULTS.iter();
        Self(
            settings
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn put(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Returns whether the limit is too small. Memory is not counted here: less than an empty server needs is too little, and anything else
    /// is enough.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        let most = self.get("maxmemory").parse::<u64>().unwrap_or(0);
        most > 0 && most < EMPTY_SERVER && self.get("maxmemory-policy") == "noeviction"
    }
}

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "config|get" => get,
        "config|set" => set,
        "config|resetstat" | "config|rewrite" => |_, _| Ok(Value::OK),
        _ => return None,
    })
}

fn get(core: &mut Core, call: &Call<'_>) -> Reply {
    let settings = core.configuration.0.iter().filter(|(name, _)| {
        let mut patterns = call.args[2..].iter();
        patterns.any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    });
    let pairs = settings.map(|(name, value)| (Value::bulk(name), Value::bulk(value)));
    Ok(Value::Map(pairs.collect()))
}

fn set(core: &mut Core, call: &Call<'_>) -> Reply {
    let pairs = &call.args[2..];
    if !pairs.len().is_multiple_of(2) {
        return Err(Failure::arity(call.name));
    }
    for pair in pairs.chunks(2) {
        let name = text(&pair[0]).to_ascii_lowercase();
        let Some(setting) = core.configuration.0.get_mut(&name) else {
            let name = text(&pair[0]);
            return Err(Failure::general(format!(
                "Unknown option or number of arguments for CONFIG SET - '{name}'"
            )));
        };
        let value = text(&pair[1]);
        *setting = if name == "maxmemory" {
            bytes(&value).map(|bytes| bytes.to_string()).ok_or_else(|| {
                Failure::general(format!(
                    "CONFIG SET failed (possibly related to argument '{name}') - argument must be a memory value"
                ))
            })?
        } else {
            value
        };
    }
    Ok(Value::OK)
}

/// Reads a number of bytes with its unit.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1024,
        "m" => 1_000_000,
        "mb" => 1024 * 1024,
        "g" => 1_000_000_000,
        "gb" => 1024 * 1024 * 1024,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// The memory that an empty server of Redis 7.0 uses.
pub(crate) const EMPTY_SERVER: u64 = 900_000;

/// The settings that the library or its tests query, with Redis' defaults.
const DEFAULTS: [(&str, &str); 24] = [
    ("appendfsync", "everysec"),
    ("appendonly", "no"),
    ("bind", "* -::*"),
    ("busy-reply-threshold", "5000"),
    (
        "client-output-buffer-limit",
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    ),
    ("cluster-enabled", "no"),
    ("cluster-node-timeout", "15000"),
    ("cluster-require-full-coverage", "yes"),
    ("databases", "16"),
    ("lua-time-limit", "5000"),
    ("maxclients", "10000"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("min-replicas-max-lag", "10"),
    ("min-replicas-to-write", "0"),
    ("notify-keyspace-events", ""),
    ("replica-read-only", "yes"),
    ("replica-serve-stale-data", "yes"),
    ("requirepass", ""),
    ("save", "3600 1 300 100 60 10000"),
    ("stop-writes-on-bgsave-error", "yes"),
    ("tcp-keepalive", "300"),
    ("timeout", "0"),
    ("unixsocket", ""),
];
