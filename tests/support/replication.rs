//! What masters and replicas say of each other, for whoever starts some. All calls block.

use std::thread;
use std::time::{Duration, Instant};

use redis::{RedisResult, Value};

use super::RedisServer;

/// `master` or `slave`, if it answers.
pub(crate) fn role(server: &RedisServer) -> Option<String> {
    let role: Vec<Value> = server.try_query(&["ROLE"]).ok()?;
    redis::from_redis_value(role.into_iter().next()?).ok()
}

pub(crate) fn is_master(server: &RedisServer) -> bool {
    role(server).as_deref() == Some("master")
}

/// Whether it has the data of the master at this port.
pub(super) fn follows(server: &RedisServer, master: u16) -> bool {
    let role: RedisResult<(String, String, u16, String, i64)> = server.try_query(&["ROLE"]);
    role.is_ok_and(|(_, _, port, state, _)| port == master && state == "connected")
}

/// How much a master has sent.
pub(super) fn sent(master: &RedisServer) -> i64 {
    offset(master, "master_repl_offset:").expect("the master runs")
}

/// How much a replica has received, if it answers and is one.
pub(super) fn received(replica: &RedisServer) -> Option<i64> {
    offset(replica, "slave_repl_offset:")
}

fn offset(server: &RedisServer, field: &str) -> Option<i64> {
    let info: String = server.try_query(&["INFO", "replication"]).ok()?;
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
}

pub(super) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sentinels wait for seconds between what they do, and for twelve until they try anew what they could not agree on.
const PATIENCE: Duration = Duration::from_secs(180);
