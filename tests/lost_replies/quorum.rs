//! A lock on several servers: whatever is lost of any request in its life, to one of them or to most, nobody else gets it while
//! it is held, nothing is left on any of them, and whoever comes next has the votes of all.

use std::rc::Rc;
use std::time::{Duration, Instant};

use distlock::{Client, Lease, QuorumGuard, QuorumLock};
use tokio::task::LocalSet;

use super::cases::play_all;
use super::numbers::FAULTS;
use super::support::{ChaosProxy, Fault, Match, Plain, eventually, heavy};
use super::together::{Story, tolerate};
use super::world::{World, client_behind};
use super::{LEASE, PATIENCE};

const SERVERS: usize = 3;
/// Short enough to be renewed meanwhile.
const SHORT_LEASE: Duration = Duration::from_secs(6);
/// Each has several clients, who are not to be too slow for their leases.
const AT_ONCE: usize = 8;
/// It asks again and again for what another has, always the same.
const MOST_REQUESTS: u64 = 8;

/// What is lost: of so many servers' requests, which, how, and whether what is held back comes when another has it.
#[derive(Clone, Copy, Debug)]
struct Loss {
    story: Story,
    servers: usize,
    nth: u64,
    fault: Fault,
    late: bool,
}

mod whatever_is_lost_of_a_quorum_lock_it_is_nobody_elses_and_the_next_gets_every_vote {
    use super::*;

    #[tokio::test]
    async fn to_one_server() {
        lose_everything(1).await;
    }

    #[tokio::test]
    async fn to_most_servers() {
        lose_everything(2).await;
    }
}

async fn lose_everything(servers: usize) {
    let _heavy = heavy().await;
    let all = async {
        let mut worlds = Vec::new();
        for _ in 0..SERVERS {
            worlds.push(Rc::new(World::start().await));
        }
        let mut losses = Vec::new();
        for story in [Story::Taken, Story::Renewed] {
            // The servers know every script before a network does wrong.
            let known = Voters::begin(&worlds, format!("{story:?}")).await;
            known.tell(story).await;
            for nth in 1..=known.requests().min(MOST_REQUESTS) {
                losses.extend(losses_of(story, servers, nth));
            }
            known.end(false).await;
        }
        eprintln!("{} cases", losses.len());
        assert!(losses.len() >= 60, "only {} cases", losses.len());
        play_all(AT_ONCE, losses, async move |number, loss: Loss| {
            let voters = Voters::begin(&worlds, format!("case-{number}-")).await;
            for proxy in &voters.proxies[..loss.servers] {
                proxy.rule(Match::command("EVALSHA").nth(loss.nth), loss.fault);
            }
            // Again for as long as a busy machine keeps the request from being sent.
            let give_up = Instant::now() + PATIENCE;
            while !voters.are_hit(loss.servers) && Instant::now() < give_up {
                voters.tell(loss.story).await;
            }
            assert!(voters.are_hit(loss.servers), "it was never sent");
            voters.end(loss.late).await;
        })
        .await;
    };
    LocalSet::new().run_until(all).await;
}

fn losses_of(story: Story, servers: usize, nth: u64) -> Vec<Loss> {
    let loss = |fault, late| Loss {
        story,
        servers,
        nth,
        fault,
        late,
    };
    let held_back = [Fault::HoldReply, Fault::HoldRequest];
    let soon = FAULTS.map(|fault| loss(fault, false));
    let late = held_back.map(|fault| loss(fault, true));
    soon.into_iter().chain(late).collect()
}

/// The clients of one case, ours over networks that may break.
struct Voters {
    name: String,
    ours: Vec<Client>,
    proxies: Vec<ChaosProxy>,
    worlds: Vec<Rc<World>>,
}

impl Voters {
    async fn begin(worlds: &[Rc<World>], name: String) -> Self {
        let (mut ours, mut proxies) = (Vec::new(), Vec::new());
        for world in worlds {
            let proxy = world.server.proxy();
            let client = client_behind::<Plain>(&proxy.url()).await;
            ours.push((*client).clone());
            proxies.push(proxy);
        }
        Self {
            name,
            ours,
            proxies,
            worlds: worlds.to_vec(),
        }
    }

    fn lock(&self, lease: Duration) -> QuorumLock {
        self.of(self.ours.iter(), lease)
    }

    fn theirs(&self) -> QuorumLock {
        self.of(self.worlds.iter().map(|world| &*world.other), LEASE)
    }

    fn of<'a>(&self, clients: impl Iterator<Item = &'a Client>, lease: Duration) -> QuorumLock {
        let members = clients.map(|client| client.lock(&*self.name).into());
        // The servers are as young as the test, and have a vote at once.
        QuorumLock::new(members)
            .with_lease(Lease::KeepAlive(lease))
            .with_longest_lease(Duration::ZERO)
    }

    async fn tell(&self, story: Story) {
        match story {
            Story::Renewed => self.hold_for_long().await,
            Story::Taken => self.try_and_wait().await,
        }
    }

    async fn try_and_wait(&self) {
        let theirs = self.theirs().acquire_timeout(PATIENCE).await;
        let theirs = theirs.expect("their network is fine");
        let theirs = theirs.expect("what was lost before is given back");
        let tried = tolerate(self.lock(LEASE).try_acquire().await);
        assert!(tried.flatten().is_none(), "it is theirs");
        let asked = self.requests();
        let waiting = tokio::spawn(self.lock(LEASE).acquire_timeout(PATIENCE));
        eventually(PATIENCE, "it has asked", async || {
            waiting.is_finished() || self.requests() > asked
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
        self.is_held_by(&guard).await;
        for _ in 0..2 {
            let until = guard.valid_until();
            eventually(PATIENCE, "it is renewed", async || {
                guard.valid_until() > until || !guard.is_held()
            })
            .await;
            self.is_held_by(&guard).await;
        }
        tolerate(guard.release().await);
    }

    /// Nobody else gets it, and each server has one hold at most, held once.
    async fn is_held_by(&self, guard: &QuorumGuard) {
        let theirs = self.theirs().try_acquire().await;
        let theirs = theirs.expect("their network is fine");
        assert!(theirs.is_none() || !guard.is_held(), "two have it");
        for world in &self.worlds {
            let holds = world.holds(&self.name).await;
            assert!(holds.values().all(|count| *count == 1), "{holds:?}");
            assert!(holds.len() <= 1, "{holds:?}");
        }
        assert!(guard.is_held(), "{:?}", guard.check());
    }

    /// It was given back: whatever still comes takes nothing, and nothing is left.
    async fn end(&self, late: bool) {
        for proxy in &self.proxies {
            proxy.clear_rules();
        }
        if !late {
            self.let_go().await;
        }
        for client in &self.ours {
            client.close().await.expect("it gives back what it has");
        }
        let theirs = self.theirs().acquire_timeout(PATIENCE).await;
        let theirs = theirs.expect("their network is fine").expect("it is free");
        eventually(PATIENCE, "every server has granted it", async || {
            theirs.votes() == SERVERS
        })
        .await;
        self.let_go().await;
        for world in &self.worlds {
            let holds = world.holds(&self.name).await;
            assert!(holds.into_values().eq([1]), "beside another, or not at all");
        }
        assert!(theirs.is_held());
        theirs.release().await.expect("it is theirs");
        for world in &self.worlds {
            let left = world.leftovers(&self.name).await;
            assert_eq!(left, [""; 0], "nobody has it");
            let marks = format!("distlock_undone:{{{}}}", self.name);
            let marks = world.pttl(&marks).await;
            assert!(
                marks != -1 && marks <= 300_000,
                "a mark stays for {marks} ms"
            );
        }
    }

    /// What was held back comes now.
    async fn let_go(&self) {
        for proxy in &self.proxies {
            proxy.let_go();
            eventually(PATIENCE, "all requests arrive", async || {
                proxy.unanswered() == 0
            })
            .await;
        }
    }

    fn are_hit(&self, servers: usize) -> bool {
        let mut proxies = self.proxies[..servers].iter();
        proxies.all(|proxy| !proxy.injected().is_empty())
    }

    /// How many requests there were to the server that was asked least.
    fn requests(&self) -> u64 {
        let requests = self.proxies.iter().map(|proxy| {
            let requests = proxy.requests().into_iter();
            requests.filter(|words| words[0] == "EVALSHA").count() as u64
        });
        requests.min().expect("there are some")
    }
}
