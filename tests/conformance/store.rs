//! The servers that cases share while they run.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

use crate::certificates::{Authority, HERE};
use crate::support::login::LEAST_PRIVILEGE;
use crate::support::redis::PROGRAM;
use crate::support::servers::TOPOLOGY;
use crate::support::{Arrangement, Cluster, RedisServer, Script, Servers};

/// Returns a server whose port speaks TLS, and the authority that has signed its certificate.
pub(crate) fn shared_tls_server() -> (Arc<Servers>, String) {
    static SHARED: Mutex<(Weak<Servers>, String)> = Mutex::new((Weak::new(), String::new()));
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.0.upgrade() {
        return (server, shared.1.clone());
    }
    // The server reads the folder when it starts, and does not need it afterwards.
    let folder = TempDir::with_prefix("distlock-").expect("there is room");
    let authority = Authority::new("the authority");
    let files = authority.sign(&HERE).write(folder.path(), "server");
    let [certificate, key] = [files.certificate, files.key].map(|path| path.display().to_string());
    let server = Arc::new(Servers::Alone(RedisServer::start_tls(&[
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

/// Returns whether the environment asks for real servers where simulated ones would do: directly, or because it names the
/// servers or the user.
pub(crate) fn real_servers() -> bool {
    let asks = ["DISTLOCK_REAL_SERVERS", TOPOLOGY, PROGRAM, LEAST_PRIVILEGE];
    asks.iter().any(|name| std::env::var_os(name).is_some())
}

/// Returns the shared server, which ends with its last user.
pub(crate) fn shared_server() -> Arc<Servers> {
    static SHARED: Mutex<Weak<Servers>> = Mutex::new(Weak::new());
    // If the server does not start, this panics and reports it for each case.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Servers::start(Arrangement::named(), Cluster::start));
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Returns every script that a case may send.
pub(crate) fn scripts() -> impl Iterator<Item = &'static str> {
    Script::every_text().chain(SCRIPTS)
}

/// The scripts of the admin, forced releases and inspection, for each kind of lock.
const SCRIPTS: [&str; 3] = [
    concat!(
        include_str!("../../src/engine/redis/lua/format/owner.lua"),
        include_str!("../../src/engine/redis/lua/format/lock.lua"),
        include_str!("../../src/engine/redis/lua/mutex/force_release.lua"),
    ),
    concat!(
        include_str!("../../src/engine/redis/lua/format/owner.lua"),
        include_str!("../../src/engine/redis/lua/simple/force_release.lua"),
    ),
    concat!(
        include_str!("../../src/engine/redis/lua/format/owner.lua"),
        include_str!("../../src/engine/redis/lua/format/lock.lua"),
        include_str!("../../src/engine/redis/lua/format/read_write.lua"),
        include_str!("../../src/engine/redis/lua/format/number.lua"),
        include_str!("../../src/engine/redis/lua/format/permits.lua"),
        include_str!("../../src/engine/redis/lua/inspect.lua")
    ),
];
