//! Several locks, of one store and of two: whatever is lost of any request in their life, nobody holds anything twice, nothing
//! is left, and whoever comes next gets all of them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use distlock::{Client, Error, Lease, MultiGuard, MultiLock};
use tokio::task::LocalSet;

use super::cases::play_all;
use super::numbers::FAULTS;
use super::support::{ChaosProxy, Fault, Match, Plain, eventually, heavy};
use super::world::{World, client_behind};
use super::{LEASE, PATIENCE};

/// Short enough to be renewed meanwhile, and long enough for a machine that stands still for seconds.
const SHORT_LEASE: Duration = Duration::from_secs(12);
/// Each has several clients, who are not to be too slow for their leases.
const AT_ONCE: usize = 20;
/// Of a semaphore.
const PERMITS: u32 = 3;

/// Where they live, the first two and the others.
#[derive(Clone, Copy, Debug)]
enum Home {
    /// All are one client's.
    OneServer,
    TwoServers,
    /// The others are in memory, where nothing is lost.
    BesideMemory,
}

/// What is done with them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Story {
    /// They are held for as long as some renewals take.
    Renewed,
    /// Tried in vain, waited for, given back, tried again and dropped.
    Taken,
}

/// What is lost: of which server's requests, which, how, and whether what is held back comes when another has them.
#[derive(Clone, Copy, Debug)]
struct Loss {
    story: Story,
    server: usize,
    nth: u64,
    fault: Fault,
    late: bool,
}

mod whatever_is_lost_of_several_locks_nobody_holds_one_twice_and_the_next_gets_all {
    use super::*;

    #[tokio::test]
    async fn of_one_server() {
        lose_everything(Home::OneServer, 150).await;
    }

    #[tokio::test]
    async fn of_two_servers() {
        lose_everything(Home::TwoServers, 200).await;
    }

    #[tokio::test]
    async fn of_a_server_and_of_memory() {
        lose_everything(Home::BesideMemory, 90).await;
    }
}

async fn lose_everything(home: Home, at_least: usize) {
    let _heavy = heavy().await;
    let all = async {
        let worlds = Rc::new([Rc::new(World::start().await), Rc::new(World::start().await)]);
        let mut losses = Vec::new();
        for story in [Story::Taken, Story::Renewed] {
            // The servers know every script before a network does wrong.
            let known = Party::begin(&*worlds, home, &format!("{story:?}")).await;
            known.tell(story).await;
            losses.extend(losses_of(story, &known.requests()));
            known.end(false).await;
        }
        eprintln!("{home:?}: {} cases", losses.len());
        assert!(losses.len() >= at_least, "only {} cases", losses.len());
        play_all(AT_ONCE, losses, async move |number, loss: Loss| {
            let party = Party::begin(&*worlds, home, &format!("case-{number}")).await;
            let proxy = &party.proxies[loss.server];
            proxy.rule(Match::command("EVALSHA").nth(loss.nth), loss.fault);
            // Again for as long as a busy machine keeps the request from being sent.
            let give_up = Instant::now() + PATIENCE;
            while !party.is_hit() && Instant::now() < give_up {
                party.tell(loss.story).await;
            }
            assert!(party.is_hit(), "{loss:?}: it was never sent");
            party.end(loss.late).await;
        })
        .await;
    };
    LocalSet::new().run_until(all).await;
}

/// Each request of each server, in every way.
fn losses_of(story: Story, requests: &[u64]) -> Vec<Loss> {
    let mut losses = Vec::new();
    for (server, requests) in requests.iter().enumerate() {
        for nth in 1..=*requests {
            for fault in FAULTS {
                let loss = Loss {
                    story,
                    server,
                    nth,
                    fault,
                    late: false,
                };
                losses.push(loss);
                if matches!(fault, Fault::HoldReply | Fault::HoldRequest) {
                    losses.push(Loss { late: true, ..loss });
                }
            }
        }
    }
    losses
}

/// The clients of one case, ours over networks that may break, and what they want: the first two are of the first store, the
/// others of the second.
struct Party {
    names: [String; 4],
    ours: [Client; 2],
    theirs: [Client; 2],
    proxies: Vec<ChaosProxy>,
    worlds: Vec<Rc<World>>,
}

impl Party {
    async fn begin(worlds: &[Rc<World>], home: Home, name: &str) -> Self {
        let worlds = match home {
            Home::TwoServers => worlds.to_vec(),
            Home::OneServer | Home::BesideMemory => worlds[..1].to_vec(),
        };
        let (mut proxies, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for world in &worlds {
            let proxy = world.server.proxy();
            let client = client_behind::<Plain>(&proxy.url()).await;
            ours.push((*client).clone());
            theirs.push((*world.other).clone());
            proxies.push(proxy);
        }
        if let Home::BesideMemory = home {
            let memory = async || Client::connect(&format!("memory:{name}")).await;
            ours.push(memory().await.expect("it is there"));
            theirs.push(memory().await.expect("it is there"));
        }
        let two = |clients: Vec<Client>| [clients[0].clone(), clients[clients.len() - 1].clone()];
        Self {
            names: ["a", "b", "c", "d"].map(|letter| format!("{name}-{letter}-")),
            ours: two(ours),
            theirs: two(theirs),
            proxies,
            worlds,
        }
    }

    /// Of every sort that is given back in its own way.
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

    /// What can be had when nobody has any of them, and nobody else then.
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

    async fn tell(&self, story: Story) {
        match story {
            Story::Renewed => self.hold_for_long().await,
            Story::Taken => self.try_and_wait().await,
        }
    }

    async fn try_and_wait(&self) {
        let permits = self.theirs[1].semaphore(self.names()[2]);
        let theirs = permits.with_permits(PERMITS).permits(PERMITS);
        let theirs = theirs.acquire_timeout(PATIENCE).await;
        let theirs = theirs.expect("their network is fine");
        let theirs = theirs.expect("what was lost before is given back");
        let tried = tolerate(self.lock(LEASE).try_acquire().await);
        // What a busy machine was too slow for may be under way, too, as what is lost.
        let mut in_doubt = tried.is_none();
        assert!(tried.flatten().is_none(), "they have the permits");
        assert!(theirs.is_held());

        let waiting = tokio::spawn(self.lock(LEASE).acquire_timeout(PATIENCE));
        eventually(PATIENCE, "it has asked", async || {
            // Those before the one that is theirs are held meanwhile.
            waiting.is_finished() || !self.holders(0).await.is_empty()
        })
        .await;
        theirs.release().await.expect("it is theirs");
        let waited = tolerate(waiting.await.expect("no panic"));
        in_doubt |= waited.is_none();
        if let Some(guard) = waited.flatten() {
            self.are_held_by(&guard).await;
            in_doubt |= tolerate(guard.release().await).is_none();
        }
        let tried = tolerate(self.lock(LEASE).try_acquire().await);
        in_doubt |= tried.is_none() || self.is_hit();
        let tried = tried.flatten();
        assert!(tried.is_some() || in_doubt, "nobody has them");
        if let Some(guard) = &tried {
            self.are_held_by(guard).await;
        }
        drop(tried);
    }

    async fn hold_for_long(&self) {
        let got = self.lock(SHORT_LEASE).acquire_timeout(PATIENCE).await;
        let Some(guard) = tolerate(got).flatten() else {
            return;
        };
        self.are_held_by(&guard).await;
        for _ in 0..2 {
            let until = guard.valid_until();
            eventually(PATIENCE, "all are renewed", async || {
                guard.valid_until() > until || !guard.is_held()
            })
            .await;
            self.are_held_by(&guard).await;
        }
        tolerate(guard.release().await);
    }

    /// Everything was given back: whatever still comes takes nothing, and nothing is left.
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
        let all = self.all_of_it().acquire_timeout(PATIENCE).await;
        let all = all.expect("their network is fine").expect("all are free");
        self.let_go().await;
        for (place, count) in [1, 1, u64::from(PERMITS), 1].into_iter().enumerate() {
            let owner = all.owner(self.names()[place]).expect("one of them");
            let held = BTreeMap::from([(owner, count)]);
            assert_eq!(self.holders(place).await, held, "beside another");
        }
        assert!(all.is_held());
        all.release().await.expect("they are theirs");
        for world in &self.worlds {
            self.nothing_is_left(world);
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

    /// Each is held by this guard, and by nobody else.
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
        let holders = seen
            .expect("their network is fine")
            .map(|seen| seen.holders);
        let holders = holders.into_iter().flatten();
        holders
            .map(|holder| (holder.owner, holder.hold_count))
            .collect()
    }

    /// But for marks, which go by themselves, and how many permits there are.
    fn nothing_is_left(&self, world: &World) {
        let mut keys = world.server.keys();
        keys.retain(|key| self.names.iter().any(|name| key.contains(name)));
        keys.retain(|key| *key != self.names[2]);
        keys.retain(|key| {
            let mark = key.starts_with("distlock_undone:");
            !(mark && (1..=300_000).contains(&world.server.pttl(key)))
        });
        assert_eq!(keys, [""; 0]);
    }

    fn is_hit(&self) -> bool {
        self.proxies
            .iter()
            .any(|proxy| !proxy.injected().is_empty())
    }

    /// How many requests there were to each server.
    fn requests(&self) -> Vec<u64> {
        let proxies = self.proxies.iter();
        let requests = proxies.map(|proxy| {
            let requests = proxy.requests().into_iter();
            requests.filter(|words| words[0] == "EVALSHA").count() as u64
        });
        requests.collect()
    }
}

/// Trouble is fine if it says that stores have not answered; "lost" would be false.
pub(crate) fn tolerate<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert!(error.is_transient(), "nobody but us had it, but: {error}");
            None
        }
    }
}
