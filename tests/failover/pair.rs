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

    /// Starts a replica of this master.
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

/// Restarts the server with all of its data.
pub(crate) fn restart(server: &RedisServer) {
    server.simulated().restart(true);
}

/// A lag that is longer than a client takes to learn that it holds a lock.
const LAG: Duration = Duration::from_millis(20);
