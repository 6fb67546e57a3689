//! The servers that cases share while they run.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

use crate::certificates::{Authority, HERE};
use crate::support::{Cluster, RedisServer, Script, Topology};

/// What the cases that run at the same time share: a server, one whose sentinels say where it is, or several.
pub(crate) enum Shared {
    Alone(RedisServer),
    Cluster(Cluster, Messages),
    Watched(Topology),
}

/// Whom the messages of a cluster reach.
#[derive(Clone, Copy)]
pub(crate) enum Messages {
    /// Those who wait for that very lock.
    InSlots,
    /// Those as well who hear all of them.
    Both,
}

impl Shared {
    fn start() -> Self {
        match std::env::var("DISTLOCK_TOPOLOGY").as_deref() {
            Err(_) => Self::Alone(RedisServer::start()),
            Ok("cluster") => Self::Cluster(Cluster::start(), Messages::InSlots),
            Ok("cluster-both") => Self::Cluster(Cluster::start(), Messages::Both),
            Ok("sentinel") => Self::Watched(Topology::start().stay()),
            Ok(other) => panic!(
                "there is no topology `{other}`; `cluster`, `cluster-both` and `sentinel` are"
            ),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Alone(server) => server.url(),
            Self::Cluster(cluster, Messages::InSlots) => cluster.url(),
            Self::Cluster(cluster, Messages::Both) => format!("{}?pubsub=both", cluster.url()),
            Self::Watched(topology) => topology.url(),
        }
    }

    /// The servers where the locks are. Nobody replaces them here.
    pub(crate) fn masters(&self) -> &[RedisServer] {
        match self {
            Self::Alone(server) => std::slice::from_ref(server),
            Self::Cluster(cluster, _) => &cluster.servers()[..3],
            Self::Watched(topology) => &topology.servers()[..1],
        }
    }

    pub(crate) fn make_scripts_known(&self) {
        let scripts = Script::every_text().chain(SCRIPTS);
        for script in scripts {
            let script = match self {
                Self::Cluster(_, Messages::InSlots) => script.replace("'PUBLISH'", "'SPUBLISH'"),
                Self::Cluster(_, Messages::Both) => {
                    let both = include_str!("../../src/engine/redis/lua/both.lua");
                    format!("{both}{script}")
                }
                Self::Alone(_) | Self::Watched(_) => script.to_owned(),
            };
            for server in self.masters() {
                server.cmd(&["SCRIPT", "LOAD", &script]);
            }
        }
    }
}

impl Deref for Shared {
    type Target = RedisServer;

    /// The first of them.
    fn deref(&self) -> &RedisServer {
        &self.masters()[0]
    }
}

/// One with a port that speaks TLS, and the authority that has signed for it.
pub(crate) fn shared_tls_server() -> (Arc<Shared>, String) {
    static SHARED: Mutex<(Weak<Shared>, String)> = Mutex::new((Weak::new(), String::new()));
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.0.upgrade() {
        return (server, shared.1.clone());
    }
    // Read by the server when it starts, and not needed afterwards.
    let folder = TempDir::with_prefix("distlock-").expect("there is room");
    let authority = Authority::new("the authority");
    let files = authority.sign(&HERE).write(folder.path(), "server");
    let [certificate, key] = [files.certificate, files.key].map(|path| path.display().to_string());
    let server = Arc::new(Shared::Alone(RedisServer::start_tls(&[
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &certificate,
        "--tls-auth-clients",
        "no",
    ])));
    *shared = (Arc::downgrade(&server), authority.pem.clone());
    (server, authority.pem)
}

/// It goes with the last of them.
pub(crate) fn shared_server() -> Arc<Shared> {
    static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
    // A server that did not start panics here, and says so for each case.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Shared::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Those of an operator, of each kind of lock.
const SCRIPTS: [&str; 5] = [
    include_str!("../../src/engine/redis/lua/fenced/inspect.lua"),
    include_str!("../../src/engine/redis/lua/mutex/force_release.lua"),
    include_str!("../../src/engine/redis/lua/mutex/inspect.lua"),
    include_str!("../../src/engine/redis/lua/simple/force_release.lua"),
    include_str!("../../src/engine/redis/lua/simple/inspect.lua"),
];
