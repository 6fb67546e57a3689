//! One lock on five servers, some of which are killed, hang, are full, or restart without their memory.

mod beside;
mod contention;
mod faults;
mod held;
mod restarted;
mod undone;

use std::time::Duration;

use distlock::{Client, Lease, Member, QuorumGuard, QuorumLock};
use tokio::time::timeout;

use crate::support::{ChaosProxy, PATIENCE, RedisServer, builder, eventually, simulated};

const NAME: &str = "quorum";
const LEASE: Duration = Duration::from_secs(40);
/// The time in which a server has to reply: a twentieth of the lease.
const ANSWER: Duration = Duration::from_secs(2);
/// More than a request and its reply take, with a proxy in between and a new connection.
const ROUND_TRIP: Duration = Duration::from_millis(500);

/// The format of the lock, which decides which libraries share it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    /// The format of `RedissonRedLock`.
    Plain,
    /// The format of redsync and node-redlock.
    Simple,
}

const FORMATS: [Format; 2] = [Format::Plain, Format::Simple];

/// Five servers.
struct Stage {
    servers: Vec<RedisServer>,
}

impl Stage {
    fn new() -> Self {
        let servers = (0..5).map(|_| RedisServer::start()).collect();
        Self { servers }
    }

    /// Connects one client to each server.
    async fn clients(&self) -> Vec<Client> {
        clients(self.servers.iter().map(RedisServer::url)).await
    }

    /// Starts a proxy before each server, and connects a client to each proxy.
    async fn proxied(&self) -> (Vec<ChaosProxy>, Vec<Client>) {
        let servers = self.servers.iter();
        let proxies: Vec<_> = servers
            .map(|server| ChaosProxy::start(server.addr()))
            .collect();
        let clients = clients(proxies.iter().map(ChaosProxy::url)).await;
        (proxies, clients)
    }

    /// Returns the servers that hold the lock.
    fn holders(&self) -> Vec<usize> {
        let holds = |place: &usize| {
            let found = self.servers[*place].try_query::<bool>(&["EXISTS", NAME]);
            found.unwrap_or(false)
        };
        (0..self.servers.len()).filter(holds).collect()
    }

    async fn held_by(&self, holders: &[usize]) {
        let what = format!("{holders:?} hold it");
        eventually(PATIENCE, &what, async || self.holders() == holders).await;
    }

    async fn nothing_is_left(&self) {
        self.held_by(&[]).await;
    }
}

/// Plays a scenario with locks of each format, on five servers and with one client for each.
fn staged(story: impl AsyncFn(Stage, Vec<Client>, Format) + Copy + Send + 'static) {
    simulated(async move || {
        for format in FORMATS {
            let stage = Stage::new();
            let clients = stage.clients().await;
            story(stage, clients, format).await;
        }
    });
}

async fn clients(urls: impl IntoIterator<Item = String>) -> Vec<Client> {
    let mut clients = Vec::new();
    for url in urls {
        let client = builder(&url).lazy_connect(true).connect().await;
        clients.push(client.expect("the server need not be up"));
    }
    clients
}

fn members(clients: &[Client], format: Format) -> Vec<Member> {
    let members = clients.iter().map(|client| match format {
        Format::Plain => client.lock(NAME).into(),
        Format::Simple => client.simple_lock(NAME).into(),
    });
    members.collect()
}

/// Returns the lock, on servers that have a vote at once: they are as young as the test.
fn lock(clients: &[Client], format: Format) -> QuorumLock {
    QuorumLock::new(members(clients, format))
        .with_lease(Lease::KeepAlive(LEASE))
        .with_longest_lease(Duration::ZERO)
}

/// Acquires the lock on all servers.
async fn on_all(lock: &QuorumLock) -> QuorumGuard {
    let guard = lock.acquire().await.expect("all are up");
    votes(&guard, 5).await;
    guard
}

async fn votes(guard: &QuorumGuard, votes: usize) {
    let what = format!("{votes} hold it");
    eventually(PATIENCE, &what, async || guard.votes() == votes).await;
}

async fn lost(guard: &QuorumGuard) -> distlock::Lost {
    let lost = timeout(PATIENCE, guard.lost()).await;
    lost.expect("it is lost").expect("it was not released")
}
