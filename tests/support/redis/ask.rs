//! The commands that a test sends to a server: queries and changes.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use redis::{FromRedisValue, Value};

use super::RedisServer;

impl RedisServer {
    /// Runs one command on a connection of its own.
    pub(crate) fn cmd(&self, words: &[&str]) -> Value {
        self.query(words)
    }

    /// Runs one command like [`cmd`](Self::cmd), with a typed reply.
    pub(crate) fn query<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_query(words)
            .unwrap_or_else(|error| panic!("`{}` failed: {error}", words.join(" ")))
    }

    /// Returns the server's uptime, in whole seconds.
    pub(crate) fn up_for(&self) -> Duration {
        let info: String = self.query(&["INFO", "server"]);
        let mut lines = info.lines();
        let up = lines.find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        let up = up.and_then(|up| up.trim().parse().ok());
        Duration::from_secs(up.expect("it says so"))
    }

    /// Returns every key, sorted.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.query(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    /// Returns the type of a key and its whole content.
    pub(crate) fn contents(&self, key: &str) -> Vec<Value> {
        let kind: String = self.query(&["TYPE", key]);
        let reading = match kind.as_str() {
            "string" => vec!["GET", key],
            "hash" => vec!["HGETALL", key],
            "list" => vec!["LRANGE", key, "0", "-1"],
            "set" => vec!["SMEMBERS", key],
            "zset" => vec!["ZRANGE", key, "0", "-1", "WITHSCORES"],
            _ => return vec![],
        };
        vec![self.cmd(&["TYPE", key]), self.cmd(&reading)]
    }

    pub(crate) fn hgetall(&self, key: &str) -> BTreeMap<String, String> {
        self.query(&["HGETALL", key])
    }

    /// Returns the remaining milliseconds; -1 for a key without expiry, -2 for a missing key.
    pub(crate) fn pttl(&self, key: &str) -> i64 {
        self.query(&["PTTL", key])
    }

    /// Returns the channels with a subscriber, sorted.
    pub(crate) fn pubsub_channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.query(&["PUBSUB", "CHANNELS"]);
        channels.sort();
        channels
    }

    pub(crate) fn flushall(&self) {
        self.cmd(&["FLUSHALL"]);
    }

    /// Makes the server forget every script, as a restart or a failover would.
    pub(crate) fn script_flush(&self) {
        self.cmd(&["SCRIPT", "FLUSH"]);
    }

    /// Closes every connection that has subscribed, and returns their number.
    pub(crate) fn kill_pubsub_clients(&self) -> u64 {
        self.query(&["CLIENT", "KILL", "TYPE", "pubsub"])
    }

    /// Closes every other connection without a subscription, and returns their number.
    pub(crate) fn kill_normal_clients(&self) -> u64 {
        self.query(&["CLIENT", "KILL", "TYPE", "normal"])
    }

    /// Returns how often a command ran since the server started, the fixture's own uses included. Subcommands are named
    /// `client|list`.
    pub(crate) fn commandstats(&self, command: &str) -> u64 {
        let info: String = self.query(&["INFO", "commandstats"]);
        let prefix = format!("cmdstat_{}:calls=", command.to_lowercase());
        info.lines()
            .find_map(|line| line.strip_prefix(&prefix)?.split(',').next()?.parse().ok())
            .unwrap_or(0)
    }

    /// Returns whether the server has a command of this name.
    pub(crate) fn knows(&self, command: &str) -> bool {
        let known: Vec<Option<Value>> = self.query(&["COMMAND", "INFO", command]);
        known.into_iter().flatten().any(|known| known != Value::Nil)
    }

    /// Returns the server's product and version, such as `Redis 7.0.15` or `Valkey 9.1.2`.
    pub(crate) fn product(&self) -> String {
        let info: String = self.query(&["INFO", "server"]);
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        // Besides its own version Valkey reports the Redis version that it is compatible with.
        let valkey = field("valkey_version:").map(|version| format!("Valkey {version}"));
        let redis = || field("redis_version:").map(|version| format!("Redis {version}"));
        valkey.or_else(redis).expect("a server has a version")
    }

    /// Returns the commands, keys and channels that users were denied, from the server's ACL log.
    pub(crate) fn denied(&self) -> Vec<String> {
        let log: Vec<HashMap<String, Value>> = self.query(&["ACL", "LOG"]);
        let objects = log.into_iter().filter_map(|mut entry| {
            let object = redis::from_redis_value::<String>(entry.remove("object")?);
            object.ok()
        });
        // Setting a client's name is optional, so its denial does not count.
        let objects = objects.filter(|object| !object.starts_with("client"));
        objects.collect()
    }

    pub(crate) fn config_set(&self, name: &str, value: &str) {
        self.cmd(&["CONFIG", "SET", name, value]);
    }
}
