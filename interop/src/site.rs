//! Where the locks are: on one server, or on one of several that takes another's place.
//!
//! A scenario names the [`Mode`] in its terms and is told of one server, the one that has the locks now. A further mode is a
//! variant here, what its clients are told, and its lines in the list.

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

/// The servers.
pub(crate) enum Site {
    Cluster {
        cluster: Cluster,
        /// The port of the master that has the locks.
        master: AtomicU16,
    },
    Sentinel {
        topology: Topology,
        /// The port of the master, by which it is known here.
        master: AtomicU16,
    },
    Single(RedisServer),
}

impl Site {
    /// Blocks until all have found each other.
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

    /// The one that has the locks.
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

    /// What a client of ours is told.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Cluster { cluster, .. } => cluster.url(),
            Self::Sentinel { topology, .. } => topology.url(),
            Self::Single(server) => server.url(),
        }
    }

    /// What a client of Redisson's is told.
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

    /// Kills the server that has the locks, by `kill -9`, when the others know what it knows. Blocks until another has taken
    /// its place. A server that is alone has nobody to do that.
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

    /// Brings those back that were killed. Blocks until they follow.
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
    /// What a server calls the channels, their listeners and a message: in a cluster, those of slots.
    pub(crate) const fn messages(self) -> [&'static str; 3] {
        match self {
            Self::Cluster => ["SHARDCHANNELS", "SHARDNUMSUB", "spublish"],
            Self::Sentinel | Self::Single => ["CHANNELS", "NUMSUB", "publish"],
        }
    }
}

/// Whether the servers talk to each other there.
pub(crate) fn is_theirs(channel: &str) -> bool {
    channel == "__sentinel__:hello"
}

/// Whether it is one of them who listens.
pub(crate) fn is_one_of_them(client: &str) -> bool {
    client.starts_with("sentinel-")
}
