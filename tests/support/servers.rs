//! Where locks are: at a server alone, at one that sentinels watch, or in a cluster.

use std::net::SocketAddr;
use std::ops::Deref;

use super::form::Form;
use super::{ChaosProxy, Cluster, RedisServer, Topology};

/// One, or some that have found each other.
pub(crate) enum Servers {
    Alone(RedisServer),
    /// And whom its messages reach.
    Cluster(Cluster, Form),
    Watched(Topology),
}

/// Which of them are to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    Alone,
    Cluster,
    /// Whose clients send every message in both manners.
    ClusterBoth,
    Sentinel,
}

impl Arrangement {
    /// The one that the environment names.
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
    /// If it is to be a cluster, such a one. All stay what they are, however busy the machine.
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

    /// Those that have locks. Nobody replaces them.
    pub(crate) fn masters(&self) -> &[RedisServer] {
        match self {
            Self::Alone(server) => std::slice::from_ref(server),
            Self::Cluster(cluster, _) => &cluster.servers()[..3],
            Self::Watched(topology) => &topology.servers()[..1],
        }
    }

    /// How those who wait are told.
    pub(crate) const fn form(&self) -> Form {
        match self {
            Self::Cluster(_, form) => *form,
            Self::Alone(_) | Self::Watched(_) => Form::Plain,
        }
    }

    /// Has them know scripts, given as they are written.
    pub(crate) fn make_known<'a>(&self, scripts: impl Iterator<Item = &'a str>) {
        for script in scripts {
            let script = self.form().of(script);
            for server in self.masters() {
                server.cmd(&["SCRIPT", "LOAD", &script]);
            }
        }
    }

    /// A network of a client's own, to all of them; what is to go wrong goes wrong on its way to the first.
    pub(crate) fn proxy(&self) -> ChaosProxy {
        let places = |servers: &[RedisServer]| -> Vec<SocketAddr> {
            servers.iter().map(RedisServer::addr).collect()
        };
        match self {
            Self::Alone(server) => ChaosProxy::start(server.addr()),
            Self::Cluster(cluster, form) => {
                let servers = places(cluster.servers());
                ChaosProxy::start_before(&servers, |doors| {
                    in_manner(cluster.url_at("", &doors[..3]), *form)
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
                ChaosProxy::start_before(&all, |doors| topology.url_at("", &doors[1..=count]))
            }
        }
    }
}

impl Deref for Servers {
    type Target = RedisServer;

    /// The first of them.
    fn deref(&self) -> &RedisServer {
        &self.masters()[0]
    }
}

fn in_manner(url: String, form: Form) -> String {
    match form {
        Form::Both => format!("{url}?pubsub=both"),
        Form::Plain => format!("{url}?pubsub=plain"),
        // Where servers can.
        Form::Sharded => url,
    }
}

/// Names the arrangement, as `scripts/topologies` does.
pub(crate) const TOPOLOGY: &str = "DISTLOCK_TOPOLOGY";
