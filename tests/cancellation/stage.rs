//! Two clients of one store, and what must be left of a lock that nobody wants any more: nothing.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock::{Client, ClientBuilder, Error, Guard, Lease, Lock};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::polls::At;
use super::support::{Family, Player, RedisServer, eventually, paced};
use super::{A_SECOND, A_WHILE, LEASE, SOON};

pub(crate) struct Stage<F: Family> {
    pub(crate) ours: Player<F>,
    pub(crate) theirs: Player<F>,
    pub(crate) server: Option<Arc<RedisServer>>,
    /// Where the file is, if it is one.
    folder: Option<Arc<TempDir>>,
    url: String,
    /// How many tasks there were before anything was dropped.
    tasks: AtomicUsize,
    /// How long it took until a lock was free again.
    waits: Arc<Mutex<Vec<Duration>>>,
    /// Whether somebody had to wait for longer than it takes.
    slow: AtomicBool,
}

impl<F: Family> Stage<F> {
    pub(crate) async fn redis() -> Self {
        let server = Arc::new(RedisServer::start());
        Self::on(server.url(), Some(server), |builder| builder).await
    }

    pub(crate) async fn redis_without_scripts() -> Self {
        let server = Arc::new(RedisServer::start());
        let url = format!("{}?scripts=off", server.url());
        Self::on(url, Some(server), |builder| builder).await
    }

    pub(crate) async fn memory() -> Self {
        static STORES: AtomicU32 = AtomicU32::new(0);
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        let url = format!("memory:cancellation-{number}");
        Self::on(url, None, |builder| builder).await
    }

    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let url = format!("sqlite:{}/locks.db", folder.path().display());
        let stage = Self::on(url, None, |builder| builder).await;
        let folder = Some(Arc::new(folder));
        Self { folder, ..stage }
    }

    /// The same store with clients that are made otherwise.
    pub(crate) async fn with(&self, build: Build) -> Self {
        let (waits, folder) = (self.waits.clone(), self.folder.clone());
        let stage = Self::on(self.url.clone(), self.server.clone(), build).await;
        Self {
            waits,
            folder,
            ..stage
        }
    }

    /// The same where requests of ours go another way to the server, which this begins: a proxy's address.
    pub(crate) async fn by_way_of(self, way: &str, build: Build) -> Self {
        let (_, parameters) = self.url.split_once('?').unwrap_or_default();
        let ours = connect(&format!("{way}?{parameters}"), build).await;
        let theirs = connect(&self.url, build).await;
        Self {
            ours,
            theirs,
            ..self
        }
    }

    async fn on(url: String, server: Option<Arc<RedisServer>>, build: Build) -> Self {
        let stage = Self {
            ours: connect(&url, build).await,
            theirs: connect(&url, build).await,
            tasks: AtomicUsize::new(0),
            waits: Arc::default(),
            slow: AtomicBool::new(false),
            folder: None,
            server,
            url,
        };
        stage.shows_what_it_looks_for().await;
        stage
    }

    /// A name nobody has used.
    pub(crate) fn name(&self) -> String {
        static NAMES: AtomicU32 = AtomicU32::new(0);
        // None is a part of another.
        format!("lock-{}-", NAMES.fetch_add(1, Ordering::Relaxed))
    }

    /// So many where requests travel; fewer where the store answers on the spot, or a thread of the client's asks it and
    /// may have the answer before anyone looks.
    pub(crate) fn if_redis(&self, places: usize) -> usize {
        match self.server.is_some() && !self.without_scripts() {
            true => places,
            false => 1,
        }
    }

    fn without_scripts(&self) -> bool {
        self.url.ends_with("scripts=off")
    }

    /// Runs a story for every place at which its future can be dropped, until it is no longer dropped.
    /// The story says whether the future came to its end.
    pub(crate) async fn sweep(
        &self,
        what: &str,
        at_least: usize,
        mut story: impl AsyncFnMut(At) -> bool,
    ) {
        self.is_at_rest();
        let mut dropped = 0;
        for at in At::places() {
            let (mut slow, mut early) = (0, 0);
            let mut finished = story(at).await;
            // A busy machine is slow now and then, but not every time.
            loop {
                if self.was_slow() {
                    slow += 1;
                    assert!(slow < TRIES, "{what}, {at:?}: it takes too long");
                } else if finished && dropped < at_least && early < TRIES {
                    // Its time was over too early to have such a place.
                    early += 1;
                } else {
                    break;
                }
                finished = story(at).await;
            }
            if finished {
                break;
            }
            dropped += 1;
        }
        let store = match (&self.server, self.without_scripts()) {
            (Some(_), false) => "redis",
            (Some(_), true) => "redis without scripts",
            (None, _) if self.url.starts_with("sqlite:") => "sqlite",
            (None, _) => "memory",
        };
        let mut waits = std::mem::take(&mut *self.waits());
        waits.sort();
        let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        eprintln!(
            "{what} on {store}: dropped at {dropped} places, free after {median:?}, at most {longest:?}"
        );
        assert!(
            median < A_SECOND,
            "{what} on {store}: free after {median:?}"
        );
        assert!(
            dropped >= at_least,
            "{what} on {store}: only at {dropped} places"
        );
    }

    /// Whether somebody had to wait for longer than it takes, since this was last asked.
    pub(crate) fn was_slow(&self) -> bool {
        self.slow.swap(false, Ordering::Relaxed)
    }

    /// From here on no task may be added to those that are there now.
    pub(crate) fn is_at_rest(&self) {
        self.tasks.store(tasks(), Ordering::Relaxed);
    }

    /// Who holds a lock, and how often.
    pub(crate) async fn holds(&self, name: &str) -> BTreeMap<String, u64> {
        let seen = self.theirs.admin().inspect(name).await;
        let holders = seen.expect("the store answers").map(|info| info.holders);
        let holders = holders.into_iter().flatten();
        holders
            .map(|holder| (holder.owner, holder.hold_count))
            .collect()
    }

    /// Who stands in the store's line for a lock that somebody holds.
    async fn line(&self, name: &str) -> Vec<String> {
        let seen = self.theirs.admin().inspect(name).await;
        let waiting = seen.expect("the store answers").map(|info| info.waiting);
        waiting.unwrap_or_default()
    }

    /// Waits until the lock is held by this guard and nobody else, as often as the guard says.
    pub(crate) async fn held_by<K>(&self, guard: &Guard<K>) {
        let count = self.theirs.counted(guard.hold_count().into());
        let held = BTreeMap::from([(guard.owner(), count)]);
        let what = format!("the store says {held:?}");
        eventually(SOON, &what, async || self.holds(guard.name()).await == held).await;
        assert!(guard.is_held());
    }

    /// Does the work, and says how much of the machine's time it took; in memory that is the clock's, which tests may stop.
    async fn timed<T>(&self, work: impl Future<Output = T>) -> (T, Duration) {
        let begun = Instant::now();
        let (done, took) = paced(work).await;
        let is_in_memory = self.server.is_none() && self.folder.is_none();
        let took = if is_in_memory { begun.elapsed() } else { took };
        (done, took)
    }

    /// The turn of whoever was behind, which comes at once: it is told, and does not have to ask.
    pub(crate) async fn turn_of(&self, behind: Behind<F::Kind>) -> Guard<F::Kind> {
        let (guard, took) = self.timed(behind.gets_its_turn()).await;
        self.slow.fetch_or(took > A_SECOND, Ordering::Relaxed);
        guard
    }

    /// Nothing is left of it: not in the store, not in the clients, not among the tasks.
    pub(crate) async fn is_gone(&self, name: &str) {
        let freed = async {
            eventually(SOON, &format!("`{name}` is free"), async || {
                self.holds(name).await.is_empty()
            })
            .await;
            // A request that was under way may still come, and is undone then.
            let guard = self.theirs.against(name).acquire_timeout(SOON).await;
            let guard = guard.expect("the store answers").expect("it is free");
            eventually(SOON, &format!("nobody waits for `{name}`"), async || {
                self.line(name).await.is_empty()
            })
            .await;
            guard
        };
        let (guard, took) = self.timed(freed).await;
        self.waits().push(took);
        // Only somebody who looks now and then has found it.
        self.slow.fetch_or(took > A_WHILE, Ordering::Relaxed);
        guard.release().await.expect("it is theirs");
        eventually(SOON, &format!("nobody listens for `{name}`"), async || {
            !self.listened_to(name)
        })
        .await;
        for client in [&self.ours, &self.theirs] {
            eventually(SOON, &format!("`{name}` is forgotten"), async || {
                if remembers(client, name) {
                    // Some things are kept for a while and forgotten when another lock is wanted.
                    let other = client.lock("another").acquire().await;
                    drop(other);
                }
                !remembers(client, name)
            })
            .await;
        }
        eventually(SOON, "no task is left", async || {
            tasks() <= self.tasks.load(Ordering::Relaxed)
        })
        .await;
        eventually(
            SOON,
            &format!("nothing is stored for `{name}`"),
            async || self.holds(name).await.is_empty() && self.keys(name).is_empty(),
        )
        .await;
    }

    fn waits(&self) -> MutexGuard<'_, Vec<Duration>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is stored under the name, but for marks that go by themselves and the last token, which stays.
    fn keys(&self, name: &str) -> Vec<String> {
        let Some(server) = &self.server else {
            return Vec::new();
        };
        let mut keys = server.keys();
        keys.retain(|key| key.contains(name));
        keys.retain(|key| !(key.starts_with("distlock_undone:") && server.pttl(key) > 0));
        keys.retain(|key| !key.starts_with("redisson_lock_token:"));
        // How many permits there are is said once and for all.
        keys.retain(|key| F::PERMITS == 0 || key != name);
        keys
    }

    pub(crate) fn listened_to(&self, name: &str) -> bool {
        let channels = self.server.as_ref().map(|server| server.pubsub_channels());
        let mut channels = channels.into_iter().flatten();
        channels.any(|channel| channel.contains(name))
    }

    /// What [`Stage::is_gone`] looks for is there while it should be.
    async fn shows_what_it_looks_for(&self) {
        let name = self.name();
        let guard = self.ours.lock(name.as_str()).acquire().await;
        let guard = guard.expect("it is free");
        assert!(!self.holds(&name).await.is_empty());
        // A reader's time is in a key of its own; and whose permits they are.
        let keys = if F::SHARED || F::PERMITS > 0 { 2 } else { 1 };
        let keys = self.server.as_ref().map_or(0, |_| keys);
        assert_eq!(self.keys(&name).len(), keys);
        // Readers need no line, nor do permits.
        assert!(F::SHARED || F::PERMITS > 0 || remembers(&self.ours, &name));
        let before = tasks();
        let waiting = tokio::spawn(self.theirs.against(name.as_str()).acquire());
        assert_eq!(tasks(), before + 1);
        eventually(SOON, "they wait", async || {
            let known = remembers(&self.theirs, &name);
            // So does a writer that readers keep out.
            let in_line = F::IN_ORDER || F::SHARED || F::PERMITS > 1;
            let in_line = usize::from(in_line) == self.line(&name).await.len();
            known && in_line && (self.server.is_none() || self.listened_to(&name))
        })
        .await;
        if F::IN_ORDER && self.server.is_some() {
            assert_eq!(self.keys(&name).len(), 4, "the lock and its line");
        }
        guard.release().await.expect("it is ours");
        let guard = waiting.await.expect("no panic").expect("it is free");
        guard.release().await.expect("it is theirs");
    }
}

async fn connect<F: Family>(url: &str, build: Build) -> Player<F> {
    let builder = Client::builder(url).default_lease(Lease::KeepAlive(LEASE));
    // A machine may stand still for a second or two.
    let builder = builder.command_timeout(SOON).connect_timeout(SOON);
    let client = build(builder).connect().await;
    Player::new(client.expect("the store is there"))
}

/// Whether a client has the name in any of its maps: they are all in what it shows of itself.
pub(crate) fn remembers(client: &Client, name: &str) -> bool {
    let shown = format!("{client:?}");
    // What another thread is just using is not shown.
    shown.contains(name) || shown.contains("<locked>")
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// How often a turn may be slow before somebody is to blame.
pub(crate) const TRIES: u32 = 3;

pub(crate) type Build = fn(ClientBuilder) -> ClientBuilder;

/// Somebody who waits for the lock in the background, in line behind whoever asked before.
pub(crate) struct Behind<K>(JoinHandle<Result<Guard<K>, Error>>);

impl<K: 'static> Behind<K> {
    /// Joins the line before it returns.
    pub(crate) fn wait(lock: &Lock<K>) -> Self {
        let mut acquiring = Box::pin(lock.acquire());
        assert!(super::polls::begin(acquiring.as_mut()), "somebody holds it");
        Self(tokio::spawn(acquiring))
    }

    /// Its turn comes, and soon.
    pub(crate) async fn gets_its_turn(self) -> Guard<K> {
        let turn = tokio::time::timeout(SOON, self.0).await;
        let turn = turn.expect("its turn comes").expect("no panic");
        turn.expect("it is free")
    }
}

/// A future with somebody who gets in line behind it as soon as it waits.
pub(crate) fn followed<F: Future, K: 'static>(
    future: F,
    lock: &Lock<K>,
    behind: &mut Option<Behind<K>>,
) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    poll_fn(move |cx| {
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() && behind.is_none() {
            *behind = Some(Behind::wait(lock));
        }
        polled
    })
}
