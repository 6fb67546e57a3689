//! The servers of the locks: a single server, a master behind sentinels, or a cluster.

use std::net::SocketAddr;
use std::ops::Deref;

use super::form::Form;
use super::{ChaosProxy, Cluster, RedisServer, Topology};

/// A single server, or several that have found each other.
pub(crate) enum Servers {
    Alone(RedisServer),
    /// A cluster, and the form of the scripts that notify waiters there.
    Cluster(Cluster, Form),
    Watched(Topology),
}

/// The arrangement of servers to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    Alone,
    Cluster,
    /// A cluster whose clients publish every message both ways, `PUBLISH` and `SPUBLISH`.
    ClusterBoth,
    Sentinel,
}

impl Arrangement {
    /// Returns the arrangement that the environment names.
    pub(crate) fn named() -> Self {
        match std::env::var(TOPOLOGY).as_deref() {
            Err(_) => Self::Alone,
            Ok("cluster") => Self::Cluster,
            Ok("cluster-both") => Self::ClusterBoth,
            Ok("sentinel") => Self::Sentinel,
            Ok(other) => panic!(
                "there is no topology `{other}`; `cluster`, `cluster-both` and `sentinel` are"
            ),
        }
    }
}

impl Servers {
    /// Starts the servers; `cluster` makes the cluster if there is to be one. No server is failed over, however busy the
    /// machine.
    pub(crate) fn start(arrangement: Arrangement, cluster: fn() -> Cluster) -> Self {
        match arrangement {
            Arrangement::Alone => Self::Alone(RedisServer::start()),
            Arrangement::Cluster => Self::Cluster(cluster().stay(), Form::Sharded),
            Arrangement::ClusterBoth => Self::Cluster(cluster().stay(), Form::Both),
            Arrangement::Sentinel => Self::Watched(Topology::start()),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Alone(server) => server.url(),
            Self::Cluster(cluster, form) => in_manner(cluster.url(), *form),
            Self::Watched(topology) => topology.url(),
        }
    }

    /// Returns the masters. They are never replaced.
    pub(crate) fn masters(&self) -> &[RedisServer] {
        match self {
            Self::Alone(server) => std::slice::from_ref(server),
            Self::Cluster(cluster, _) => &cluster.servers()[..3],
            Self::Watched(topology) => &topology.servers()[..1],
        }
    }

    /// Returns how waiters are notified.
    pub(crate) const fn form(&self) -> Form {
        match self {
            Self::Cluster(_, form) => *form,
            Self::Alone(_) | Self::Watched(_) => Form::Plain,
        }
    }

    /// Loads scripts, given as they are written, into every master.
    pub(crate) fn load_all<'a>(&self, scripts: impl Iterator<Item = &'a str>) {
        for script in scripts {
            let script = self.form().of(script);
            for server in self.masters() {
                server.cmd(&["SCRIPT", "LOAD", &script]);
            }
        }
    }

    /// Starts a network of a client's own, to all servers; faults apply on the way to the first one.
    pub(crate) fn proxy(&self) -> ChaosProxy {
        let places = |servers: &[RedisServer]| -> Vec<SocketAddr> {
            servers.iter().map(RedisServer::addr).collect()
        };
        match self {
            Self::Alone(server) => ChaosProxy::start(server.addr()),
            Self::Cluster(cluster, form) => {
                let servers = places(cluster.servers());
                ChaosProxy::start_before(&servers, |proxies| {
                    in_manner(cluster.url_at("", &proxies[..3]), *form)
                })
            }
            Self::Watched(topology) => {
                let [sentinels, servers] = [topology.sentinels(), topology.servers()].map(places);
                let count = sentinels.len();
                let all: Vec<SocketAddr> = servers[..1]
                    .iter()
                    .chain(&sentinels)
                    .chain(&servers[1..])
                    .copied()
                    .collect();
                ChaosProxy::start_before(&all, |proxies| topology.url_at("", &proxies[1..=count]))
            }
        }
    }
}

impl Deref for Servers {
    type Target = RedisServer;

    /// Returns the first master.
    fn deref(&self) -> &RedisServer {
        &self.masters()[0]
    }
}

fn in_manner(url: String, form: Form) -> String {
    match form {
        Form::Both => format!("{url}?pubsub=both"),
        Form::Plain => format!("{url}?pubsub=plain"),
        // The default, for servers that support sharded channels.
        Form::Sharded => url,
    }
}

/// Names the variable for the arrangement; `scripts/topologies` uses it, too.
pub(crate) const TOPOLOGY: &str = "DISTLOCK_TOPOLOGY";
