//! A server and a replica of it.

use std::time::Duration;

use crate::support::RedisServer;

pub(crate) struct Pair {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
}

impl Pair {
    pub(crate) fn start() -> Self {
        let master = RedisServer::start();
        let replica = Self::of(&master);
        Self { master, replica }
    }

    /// A replica of this master.
    pub(crate) fn of(master: &RedisServer) -> RedisServer {
        let replica = RedisServer::start();
        replica.simulated().follow(master.simulated(), LAG);
        replica
    }

    /// Makes the replica a server of its own, as sentinels do when the master has died.
    pub(crate) fn promote(&self) {
        self.replica.simulated().promote();
    }

    /// Lets nothing arrive at the replica, or ends that.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.replica.simulated().cut_replication(is_cut);
    }
}

/// Starts the server again with all that it had.
pub(crate) fn restart(server: &RedisServer) {
    server.simulated().restart(true);
}

/// Longer than it takes to tell a client that it holds a lock.
const LAG: Duration = Duration::from_millis(20);
