//! Several locks, of one store and of two: whatever is lost of any request in their life, each is held once, nothing is left, and the next
//! caller acquires all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Client, Lease, MultiGuard, MultiLock};

use super::losses::{Party, Story, deliver_held, lose_everything, tolerate};
use super::server::{TestServer, client_behind};
use super::{LEASE, PATIENCE};
use crate::support::{ChaosProxy, Plain, eventually, simulated};

/// A lease that is short enough to be renewed during the story.
const SHORT_LEASE: Duration = Duration::from_secs(6);
/// The permits of the semaphore among the locks.
const PERMITS: u32 = 3;

mod any_lost_message_of_several_locks_breaks_no_exclusion_and_the_next_gets_all {
    use super::*;

    #[test]
    fn of_one_server() {
        simulated(async || lose(1, false, 150).await);
    }

    #[test]
    fn of_two_servers() {
        simulated(async || lose(2, false, 200).await);
    }

    /// Nothing is lost on the way to memory.
    #[test]
    fn of_a_server_and_of_memory() {
        simulated(async || lose(1, true, 90).await);
    }
}

async fn lose(servers: usize, memory: bool, at_least: usize) {
    let mut all = Vec::new();
    for _ in 0..servers {
        all.push(TestServer::start().await);
    }
    let groups: [&[usize]; 2] = [&[0], &[1]];
    lose_everything(at_least, u64::MAX, &groups[..servers], async |name| {
        Clients::begin(&all, memory, &name).await
    })
    .await;
}

/// The clients of one case: the first two locks are in the first store, the others in the last.
struct Clients<'a> {
    names: [String; 4],
    ours: [Client; 2],
    theirs: [Client; 2],
    proxies: Vec<ChaosProxy>,
    servers: &'a [TestServer],
}

impl<'a> Clients<'a> {
    async fn begin(servers: &'a [TestServer], memory: bool, name: &str) -> Self {
        let (mut proxies, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for server in servers {
            let proxy = server.proxy();
            let client = client_behind::<Plain>(&proxy, "").await;
            ours.push((*client).clone());
            theirs.push((*server.other).clone());
            proxies.push(proxy);
        }
        if memory {
            let thread = std::thread::current().id();
            let url = format!("memory:{name}{thread:?}");
            let memory = async || Client::connect(&url).await.expect("it is there");
            ours.push(memory().await);
            theirs.push(memory().await);
        }
        let two = |clients: Vec<Client>| [clients[0].clone(), clients[clients.len() - 1].clone()];
        Self {
            names: ["a", "b", "c", "d"].map(|letter| format!("{name}{letter}-")),
            ours: two(ours),
            theirs: two(theirs),
            proxies,
            servers,
        }
    }

    /// Returns a multi-lock with one lock of every sort that is released in its own way.
    fn lock(&self, lease: Duration) -> MultiLock {
        let ([first, second], [a, b, c, d]) = (&self.ours, self.names());
        let lock = MultiLock::new([
            first.lock(a).into(),
            first.rw_lock(b).read().into(),
            second.semaphore(c).with_permits(PERMITS).permits(2).into(),
            second.fair_lock(d).into(),
        ]);
        lock.with_lease(Lease::KeepAlive(lease))
    }

    /// Returns a multi-lock that is available when none of the locks is held, and excludes all others.
    fn all_of_it(&self) -> MultiLock {
        let ([first, second], [a, b, c, d]) = (&self.theirs, self.names());
        let permits = second.semaphore(c).with_permits(PERMITS).permits(PERMITS);
        let lock = MultiLock::new([
            first.lock(a).into(),
            first.rw_lock(b).write().into(),
            permits.into(),
            second.fair_lock(d).into(),
        ]);
        lock.with_lease(Lease::KeepAlive(LEASE))
    }

    fn names(&self) -> [&str; 4] {
        self.names.each_ref().map(String::as_str)
    }

    async fn try_and_wait(&self) {
        let permits = self.theirs[1].semaphore(self.names()[2]);
        let theirs = permits.with_permits(PERMITS).permits(PERMITS);
        let theirs = theirs.acquire().await.expect("their network is fine");
        let tried = tolerate(self.lock(LEASE).try_acquire().await).flatten();
        assert!(tried.is_none(), "they have the permits");
        assert!(theirs.is_held());

        let waiting = tokio::spawn(self.lock(LEASE).acquire_timeout(PATIENCE));
        eventually(PATIENCE, "it has asked", async || {
            // The waiter holds the locks before the one that the other client holds.
            waiting.is_finished() || !self.holders(0).await.is_empty()
        })
        .await;
        theirs.release().await.expect("it is theirs");
        if let Some(guard) = tolerate(waiting.await.expect("no panic")).flatten() {
            self.are_held_by(&guard).await;
            tolerate(guard.release().await);
        }
        let tried = tolerate(self.lock(LEASE).try_acquire().await).flatten();
        let is_hit = self
            .proxies
            .iter()
            .any(|proxy| !proxy.injected().is_empty());
        assert!(tried.is_some() || is_hit, "nobody has them");
        if let Some(guard) = &tried {
            self.are_held_by(guard).await;
        }
    }

    async fn hold_for_long(&self) {
        let got = self.lock(SHORT_LEASE).acquire_timeout(PATIENCE).await;
        let Some(guard) = tolerate(got).flatten() else {
            return;
        };
        for _ in 0..3 {
            self.are_held_by(&guard).await;
            tokio::time::sleep(SHORT_LEASE / 2).await;
        }
        self.are_held_by(&guard).await;
        tolerate(guard.release().await);
    }

    /// Checks that each lock is held by this guard alone.
    async fn are_held_by(&self, guard: &MultiGuard) {
        for (place, count) in [1, 1, 2, 1].into_iter().enumerate() {
            let owner = guard.owner(self.names()[place]).expect("one of them");
            let held = BTreeMap::from([(owner, count)]);
            let what = format!("only {held:?} for `{}`", self.names[place]);
            eventually(PATIENCE, &what, async || self.holders(place).await == held).await;
        }
        assert!(guard.is_held(), "{:?}", guard.check());
    }

    async fn holders(&self, place: usize) -> BTreeMap<String, u64> {
        let store = &self.theirs[place / 2];
        let seen = store.admin().inspect(self.names()[place]).await;
        let seen = seen.expect("their network is fine");
        let holders = seen.into_iter().flat_map(|seen| seen.holders);
        holders
            .map(|holder| (holder.owner, holder.hold_count))
            .collect()
    }
}

impl Party for Clients<'_> {
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
        let all = self.all_of_it().acquire_timeout(PATIENCE).await;
        let all = all.expect("their network is fine").expect("all are free");
        deliver_held(&self.proxies).await;
        for (place, count) in [1, 1, u64::from(PERMITS), 1].into_iter().enumerate() {
            let owner = all.owner(self.names()[place]).expect("one of them");
            let held = BTreeMap::from([(owner, count)]);
            assert_eq!(self.holders(place).await, held, "beside another");
        }
        assert!(all.is_held());
        all.release().await.expect("they are theirs");
        for server in self.servers {
            // The number of permits stays in the store.
            server.redis.query::<i64>(&["DEL", &self.names[2]]);
            for name in &self.names {
                server.nothing_is_left(name);
            }
        }
    }
}
