//! A master that its sentinels replace while locks are held and waited for: nothing is lost that was replicated, nobody
//! hangs, and nobody is told of a server that may not be written to.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod delay;
mod doctor;
mod documents;
mod hammer;
mod held;
mod inspection;
mod liars;
mod waiting;

use std::collections::HashSet;
use std::time::Duration;

use distlock::{Client, ClientBuilder, Lease};

use support::{ChaosProxy, Fault, Match, RedisServer, Topology, eventually};

/// A server on a busy machine is slow to answer, and not down. Sentinels who disagree about who is to promote a replica begin
/// anew only after twelve seconds, several times on a busy machine, and no lease is to end meanwhile.
fn patient(url: &str) -> ClientBuilder {
    Client::builder(url)
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .default_lease(Lease::KeepAlive(5 * PATIENCE))
}

async fn connect(topology: &Topology) -> Client {
    let connected = patient(&topology.url()).connect().await;
    connected.expect("the master is up")
}

/// Before each sentinel something that has it greet so many milliseconds late.
fn slow_to_greet(topology: &Topology, millis: [u64; 3]) -> Vec<ChaosProxy> {
    let sentinels = topology.sentinels().iter().zip(millis);
    let proxies = sentinels.map(|(sentinel, millis)| {
        let proxy = ChaosProxy::start(sentinel.addr());
        let late = Fault::DelayReply(Duration::from_millis(millis));
        proxy.rule(Match::command("HELLO"), late);
        proxy
    });
    proxies.collect()
}

/// Runs what blocks; the other tasks go on elsewhere.
fn beside<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// Until no connection of ours leads to a server that is no longer the master. Seen from our side: its sentinels, too, end
/// connections to it once they have made a replica of it, and one that hangs cannot be asked.
async fn until_left(old: &RedisServer) {
    eventually(PATIENCE, "the old master is left", async || {
        connections_to(old.port()) == 0
    })
    .await;
}

/// Every key but the marks that refuse what was given up, and end by themselves.
fn held_at(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys();
    keys.retain(|key| !key.starts_with("distlock_undone:"));
    keys
}

/// How many connections this process has to a port.
fn connections_to(port: u16) -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    let links = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    let ours: HashSet<String> = links.map(|link| link.display().to_string()).collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux has it");
    let to_port = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let remote = fields.get(2).and_then(|remote| remote.rsplit(':').next());
        let remote = remote.and_then(|port| u16::from_str_radix(port, 16).ok());
        let socket = fields.get(9).map(|inode| format!("socket:[{inode}]"));
        remote == Some(port) && socket.is_some_and(|socket| ours.contains(&socket))
    };
    table.lines().filter(to_port).count()
}

/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
