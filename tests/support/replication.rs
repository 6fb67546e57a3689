//! The replication state that masters and replicas report, for the fixtures that start several servers. All calls block.

use std::thread;
use std::time::{Duration, Instant};

use redis::{RedisResult, Value};

use super::RedisServer;

/// Returns `master` or `slave`, if the server answers.
pub(crate) fn role(server: &RedisServer) -> Option<String> {
    let role: Vec<Value> = server.try_query(&["ROLE"]).ok()?;
    redis::from_redis_value(role.into_iter().next()?).ok()
}

pub(crate) fn is_master(server: &RedisServer) -> bool {
    role(server).as_deref() == Some("master")
}

/// Returns whether the server is a connected replica of the master at this port.
pub(super) fn follows(server: &RedisServer, master: u16) -> bool {
    let role: RedisResult<(String, String, u16, String, i64)> = server.try_query(&["ROLE"]);
    role.is_ok_and(|(_, _, port, state, _)| port == master && state == "connected")
}

/// Returns the replication offset of a master.
pub(super) fn sent(master: &RedisServer) -> i64 {
    offset(master, "master_repl_offset:").expect("the master runs")
}

/// Returns the replication offset of a replica, if it answers and is one.
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

/// Sentinels pause for seconds between their steps, and for twelve before they retry a failed election.
const PATIENCE: Duration = Duration::from_secs(180);
