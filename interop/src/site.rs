//! The site of the locks: one server, or several of which one has the locks and another is promoted when it dies.
//!
//! A scenario names the [`Mode`] in its terms and is given one server, the one that has the locks now. A further mode is a variant here,
//! the settings of its clients, and its lines in the list.

use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};

use crate::support::sentinel::MASTER;
use crate::support::{Cluster, RedisServer, Topology};

/// How the servers work together, in Redisson's word.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Mode {
    /// Three masters, one of which has the locks, and its replica.
    Cluster,
    /// A master, two replicas and three sentinels.
    Sentinel,
    /// One server.
    Single,
}

/// The servers of a site.
pub(crate) enum Site {
    Cluster {
        cluster: Cluster,
        /// The port of the master that has the locks.
        master: AtomicU16,
    },
    Sentinel {
        topology: Topology,
        /// The port of the master, by which it is identified here.
        master: AtomicU16,
    },
    Single(RedisServer),
}

impl Site {
    /// Starts the servers; blocks until all have found each other.
    pub(crate) fn start(mode: Mode) -> Self {
        match mode {
            Mode::Cluster => {
                let cluster = Cluster::start_lopsided();
                let master = AtomicU16::new(cluster.servers()[0].port());
                Self::Cluster { cluster, master }
            }
            Mode::Sentinel => {
                let topology = Topology::start();
                let master = AtomicU16::new(topology.master().port());
                Self::Sentinel { topology, master }
            }
            Mode::Single => Self::Single(RedisServer::start()),
        }
    }

    /// Returns the server that has the locks.
    pub(crate) fn server(&self) -> &RedisServer {
        let (servers, master) = match self {
            Self::Cluster { cluster, master } => (cluster.servers(), master),
            Self::Sentinel { topology, master } => (topology.servers(), master),
            Self::Single(server) => return server,
        };
        let port = master.load(Ordering::Relaxed);
        let found = servers.iter().find(|server| server.port() == port);
        found.expect("the master is one of them")
    }

    pub(crate) const fn mode(&self) -> Mode {
        match self {
            Self::Cluster { .. } => Mode::Cluster,
            Self::Sentinel { .. } => Mode::Sentinel,
            Self::Single(_) => Mode::Single,
        }
    }

    /// Returns the url for a client of ours.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Cluster { cluster, .. } => cluster.url(),
            Self::Sentinel { topology, .. } => topology.url(),
            Self::Single(server) => server.url(),
        }
    }

    /// Returns the settings for a client of Redisson's.
    pub(crate) fn for_java(&self) -> Value {
        let address = |server: &RedisServer| format!("redis://{}", server.addr());
        match self {
            Self::Cluster { cluster, .. } => {
                let nodes: Vec<String> = cluster.servers().iter().map(address).collect();
                json!({"nodes": nodes})
            }
            Self::Sentinel { topology, .. } => {
                let sentinels: Vec<String> = topology.sentinels().iter().map(address).collect();
                json!({"sentinels": sentinels, "master": MASTER})
            }
            Self::Single(server) => json!({"address": address(server)}),
        }
    }

    /// Kills the server that has the locks, by `kill -9`, once the replicas have its data. Blocks until another one is promoted. A single
    /// server has no replica to promote.
    pub(crate) fn fail_over(&self) {
        match self {
            Self::Cluster { cluster, master } => {
                let new = cluster.kill(self.server());
                master.store(new.port(), Ordering::Relaxed);
            }
            Self::Sentinel { topology, master } => {
                let (_, new) = topology.kill_master();
                master.store(new.port(), Ordering::Relaxed);
            }
            Self::Single(_) => panic!("nobody takes the place of a server that is alone"),
        }
    }

    /// Restarts the killed servers. Blocks until they follow.
    pub(crate) fn mend(&self) {
        match self {
            Self::Cluster { cluster, .. } => {
                for server in cluster.servers() {
                    if server.try_query::<String>(&["PING"]).is_err() {
                        server.restart();
                    }
                }
                cluster.until_settled();
            }
            Self::Sentinel { topology, .. } => {
                let master = self.server().port().to_string();
                for server in topology.servers() {
                    if server.try_query::<String>(&["PING"]).is_err() {
                        server.restart();
                        server.cmd(&["REPLICAOF", "127.0.0.1", &master]);
                    }
                }
                topology.until_settled();
            }
            Self::Single(_) => {}
        }
    }
}

impl Mode {
    /// Returns the subcommands of a server for the channels and their subscribers, and the command for a message: in a cluster, the sharded
    /// ones.
    pub(crate) const fn messages(self) -> [&'static str; 3] {
        match self {
            Self::Cluster => ["SHARDCHANNELS", "SHARDNUMSUB", "spublish"],
            Self::Sentinel | Self::Single => ["CHANNELS", "NUMSUB", "publish"],
        }
    }
}

/// Reports whether the servers use this channel among themselves.
pub(crate) fn is_theirs(channel: &str) -> bool {
    channel == "__sentinel__:hello"
}

/// Reports whether this subscriber is one of the servers.
pub(crate) fn is_one_of_them(client: &str) -> bool {
    client.starts_with("sentinel-")
}
