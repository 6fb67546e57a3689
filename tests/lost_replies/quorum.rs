//! A lock on five servers: whatever is lost of any request in its life, to one server or to most, no other client acquires it while it is
//! held, nothing is left on any server, and the next caller has all votes.

use std::time::Duration;

use distlock::{Client, Lease, QuorumGuard, QuorumLock};

use super::losses::{Party, Story, deliver_held, lose_everything, requests, tolerate};
use super::server::{TestServer, client_behind};
use super::{LEASE, PATIENCE};
use crate::support::{ChaosProxy, Plain, eventually, simulated};

const SERVERS: usize = 5;
/// A lease that is short enough to be renewed during the story.
const SHORT_LEASE: Duration = Duration::from_secs(6);
/// Limit, since a waiter sends the same requests again and again.
const MOST_REQUESTS: u64 = 8;

mod any_lost_message_of_a_quorum_lock_breaks_no_exclusion_and_the_next_gets_every_vote {
    use super::*;

    #[test]
    fn to_one_server() {
        simulated(async || lose(&[0]).await);
    }

    #[test]
    fn to_most_servers() {
        simulated(async || lose(&[0, 1, 2]).await);
    }
}

async fn lose(servers: &[usize]) {
    let mut all = Vec::new();
    for _ in 0..SERVERS {
        all.push(TestServer::start().await);
    }
    lose_everything(60, MOST_REQUESTS, &[servers], async |name| {
        Voters::begin(&all, name).await
    })
    .await;
}

/// The clients of one case, ours over networks that may break.
struct Voters<'a> {
    name: String,
    ours: Vec<Client>,
    proxies: Vec<ChaosProxy>,
    servers: &'a [TestServer],
}

impl<'a> Voters<'a> {
    async fn begin(servers: &'a [TestServer], name: String) -> Self {
        let (mut ours, mut proxies) = (Vec::new(), Vec::new());
        for server in servers {
            let proxy = server.proxy();
            let client = client_behind::<Plain>(&proxy, "").await;
            ours.push((*client).clone());
            proxies.push(proxy);
        }
        Self {
            name,
            ours,
            proxies,
            servers,
        }
    }

    fn lock(&self, lease: Duration) -> QuorumLock {
        self.of(self.ours.iter(), lease)
    }

    fn theirs(&self) -> QuorumLock {
        self.of(self.servers.iter().map(|server| &*server.other), LEASE)
    }

    fn of<'c>(&self, clients: impl Iterator<Item = &'c Client>, lease: Duration) -> QuorumLock {
        let members = clients.map(|client| client.lock(&*self.name).into());
        // The servers are as young as the test, but have a vote at once.
        QuorumLock::new(members)
            .with_lease(Lease::KeepAlive(lease))
            .with_longest_lease(Duration::ZERO)
    }

    async fn try_and_wait(&self) {
        let theirs = self.theirs().acquire_timeout(PATIENCE).await;
        let theirs = theirs.expect("their network is fine");
        let theirs = theirs.expect("it is free");
        let tried = tolerate(self.lock(LEASE).try_acquire().await);
        assert!(tried.flatten().is_none(), "it is theirs");
        let asked = self.asked();
        let waiting = tokio::spawn(self.lock(LEASE).acquire_timeout(PATIENCE));
        eventually(PATIENCE, "it has asked", async || {
            waiting.is_finished() || self.asked() > asked
        })
        .await;
        assert!(theirs.is_held());
        theirs.release().await.expect("it is theirs");
        if let Some(guard) = tolerate(waiting.await.expect("no panic")).flatten() {
            self.is_held_by(&guard).await;
            tolerate(guard.release().await);
        }
        // A release that was lost may still be under way.
        let tried = tolerate(self.lock(LEASE).try_acquire().await).flatten();
        if let Some(guard) = &tried {
            self.is_held_by(guard).await;
        }
        drop(tried);
    }

    async fn hold_for_long(&self) {
        let got = self.lock(SHORT_LEASE).acquire_timeout(PATIENCE).await;
        let Some(guard) = tolerate(got).flatten() else {
            return;
        };
        for _ in 0..3 {
            self.is_held_by(&guard).await;
            tokio::time::sleep(SHORT_LEASE / 2).await;
        }
        self.is_held_by(&guard).await;
        tolerate(guard.release().await);
    }

    /// Checks that no other client acquires the lock, and that each server has at most one hold, with a count of one.
    async fn is_held_by(&self, guard: &QuorumGuard) {
        let theirs = self.theirs().try_acquire().await;
        let theirs = theirs.expect("their network is fine");
        assert!(theirs.is_none() || !guard.is_held(), "two have it");
        for server in self.servers {
            let holds = server.holds(&self.name).await;
            assert!(holds.values().all(|count| *count == 1), "{holds:?}");
            assert!(holds.len() <= 1, "{holds:?}");
        }
        assert!(guard.is_held(), "{:?}", guard.check());
    }

    /// Returns the number of requests to the server that received the fewest.
    fn asked(&self) -> u64 {
        let requests = self.proxies.iter().map(requests);
        requests.min().expect("there are some")
    }
}

impl Party for Voters<'_> {
    fn proxies(&self) -> &[ChaosProxy] {
        &self.proxies
    }

    async fn run_story(&self, story: Story) {
        match story {
            Story::Renewed => self.hold_for_long().await,
            Story::Taken => self.try_and_wait().await,
        }
    }

    async fn end(&self, late: bool) {
        if !late {
            deliver_held(&self.proxies).await;
        }
        for client in &self.ours {
            client.close().await.expect("it releases what it has");
        }
        let theirs = self.theirs().acquire_timeout(PATIENCE).await;
        let theirs = theirs.expect("their network is fine").expect("it is free");
        eventually(PATIENCE, "every server has granted it", async || {
            theirs.votes() == SERVERS
        })
        .await;
        deliver_held(&self.proxies).await;
        for server in self.servers {
            let holds = server.holds(&self.name).await;
            assert!(holds.into_values().eq([1]), "beside another, or not at all");
        }
        assert!(theirs.is_held());
        theirs.release().await.expect("it is theirs");
        for server in self.servers {
            server.nothing_is_left(&self.name);
        }
    }
}
