//! Five servers, and clients that have one connection to each.

use std::time::{Duration, Instant};

use distlock::{Client, Lease, Member, QuorumGuard, QuorumLock};

use super::support::{PATIENCE, RedisServer, eventually};

pub(crate) const NAME: &str = "quorum";
/// Long enough that a server has two seconds to answer, a twentieth of it: as much as a busy machine may take.
pub(crate) const LEASE: Duration = Duration::from_secs(40);

/// Which libraries take the same lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    /// `RedissonRedLock`.
    Plain,
    /// redsync, node-redlock.
    Simple,
}

pub(crate) const FORMATS: [Format; 2] = [Format::Plain, Format::Simple];

pub(crate) struct Stage {
    pub(crate) servers: Vec<RedisServer>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let servers = (0..5).map(|_| RedisServer::start()).collect();
        Self { servers }
    }

    /// A client of each server's own.
    pub(crate) async fn clients(&self) -> Vec<Client> {
        let urls = self.servers.iter().map(RedisServer::url);
        clients(urls).await
    }

    /// Waits until no server has anything of the lock.
    pub(crate) async fn nothing_is_left(&self) {
        eventually(PATIENCE, "no server has anything of it", async || {
            self.holders().is_empty()
        })
        .await;
    }

    /// Where it is held.
    pub(crate) fn holders(&self) -> Vec<usize> {
        let places = 0..self.servers.len();
        let held = places.filter(|place| {
            let found = self.servers[*place].try_query::<bool>(&["EXISTS", NAME]);
            found.unwrap_or(false)
        });
        held.collect()
    }
}

pub(crate) async fn clients(urls: impl IntoIterator<Item = String>) -> Vec<Client> {
    let mut clients = Vec::new();
    for url in urls {
        let client = Client::builder(&url).may_be_down(true).connect().await;
        clients.push(client.expect("it need not be up"));
    }
    clients
}

/// The lock, on servers that have a vote at once: they are as young as the test.
pub(crate) fn lock(clients: &[Client], format: Format) -> QuorumLock {
    QuorumLock::new(members(clients, format))
        .with_lease(Lease::KeepAlive(LEASE))
        .with_longest_lease(Duration::ZERO)
}

/// Takes it when it is free. A server has a twentieth of the lease to answer: where that is short, a busy machine may take
/// longer, and nobody has refused it then.
pub(crate) async fn taken(lock: &QuorumLock) -> QuorumGuard {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match lock.acquire().await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_transient() && Instant::now() < give_up, "{error}"),
        }
    }
}

pub(crate) fn members(clients: &[Client], format: Format) -> Vec<Member> {
    let members = clients.iter().map(|client| match format {
        Format::Plain => client.lock(NAME).into(),
        Format::Simple => client.simple_lock(NAME).into(),
    });
    members.collect()
}
