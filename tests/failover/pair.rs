//! A server and a replica of it.

use super::support::{PATIENCE, RedisServer, eventually};

pub(crate) struct Pair {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
}

impl Pair {
    pub(crate) async fn start() -> Self {
        let master = RedisServer::start_with(QUIET);
        let replica = replica_of(&master);
        let pair = Self { master, replica };
        eventually(PATIENCE, "the replica is connected", async || {
            field(&pair.master, "connected_slaves:") == "1"
                && field(&pair.replica, "master_link_status:") == "up"
        })
        .await;
        pair
    }

    /// Makes the replica a server of its own, as whoever watches them does when the other has died.
    pub(crate) fn promote(&self) {
        self.replica.cmd(&["REPLICAOF", "NO", "ONE"]);
    }
}

pub(crate) fn replica_of(master: &RedisServer) -> RedisServer {
    let port = master.port().to_string();
    let args = [QUIET, &["--replicaof", "127.0.0.1", &port]].concat();
    RedisServer::start_with(&args)
}

/// What a server says of its replication.
pub(crate) fn field(server: &RedisServer, name: &str) -> String {
    let info: String = server.query(&["INFO", "replication"]);
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap_or_default().trim().to_owned()
}

/// Nothing is written but what tests write, and replicas are fed at once.
const QUIET: &[&str] = &[
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "3600",
];
