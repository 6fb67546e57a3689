//! Two clients of one store, and the check that nothing is left of a lock that no caller wants any more.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use distlock::{Client, ClientBuilder, Error, Guard, Lease, Lock};
use tempfile::TempDir;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::drop_at::{DropAt, begin};
use super::{A_SECOND, LEASE, PATIENCE};
use crate::support::{Family, Player, RedisServer, builder, eventually, simulated};

/// A store for locks, made anew for each test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Redis,
    WithoutScripts,
    Memory,
    /// A real file, in real time: the engine has threads of its own.
    File,
}

/// Plays a test with these stores, under virtual time if that is possible.
pub(crate) fn play(stores: &[Store], test: impl AsyncFnOnce() + Copy + Send + 'static) {
    if stores.contains(&Store::File) {
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("there is memory").block_on(test());
    } else {
        simulated(test);
    }
}

pub(crate) struct Fixture<F: Family> {
    pub(crate) ours: Player<F>,
    pub(crate) theirs: Player<F>,
    pub(crate) server: Option<Rc<RedisServer>>,
    store: Store,
    folder: Option<Rc<TempDir>>,
    url: String,
    /// The number of tasks, and of connections, before anything was dropped.
    at_rest: Cell<(usize, usize)>,
}

impl<F: Family> Fixture<F> {
    pub(crate) async fn of(store: Store) -> Self {
        let (mut server, mut folder) = (None, None);
        let url = match store {
            Store::Redis => server.insert(Rc::new(RedisServer::start())).url(),
            Store::WithoutScripts => {
                let server = server.insert(Rc::new(RedisServer::start()));
                format!("{}?scripts=off", server.url())
            }
            Store::Memory => format!("memory:{}", unique("store")),
            Store::File => {
                let folder = folder.insert(Rc::new(TempDir::new().expect("there is room")));
                format!("sqlite:{}/locks.db", folder.path().display())
            }
        };
        let fixture = Self {
            ours: connect(store, &url, |builder| builder).await,
            theirs: connect(store, &url, |builder| builder).await,
            at_rest: Cell::default(),
            server,
            store,
            folder,
            url,
        };
        fixture.warm_up().await;
        fixture
    }

    /// Returns the same store with clients that are built differently.
    pub(crate) async fn with(&self, build: Build) -> Self {
        let fixture = Self {
            ours: connect(self.store, &self.url, build).await,
            theirs: connect(self.store, &self.url, build).await,
            at_rest: Cell::default(),
            server: self.server.clone(),
            folder: self.folder.clone(),
            store: self.store,
            url: self.url.clone(),
        };
        fixture.warm_up().await;
        fixture
    }

    /// Returns the same fixture with our client behind a proxy, whose address this starts with.
    pub(crate) async fn behind(self, proxy: &str, build: Build) -> Self {
        let (_, parameters) = self.url.split_once('?').unwrap_or_default();
        let ours = connect(self.store, &format!("{proxy}?{parameters}"), build).await;
        let fixture = Self { ours, ..self };
        fixture.warm_up().await;
        fixture
    }

    /// Returns a name that no other lock has.
    pub(crate) fn name(&self) -> String {
        unique("lock")
    }

    /// Plays a story for every place at which its future can be dropped, until the future completes first. The story returns whether it
    /// did. On a server the future is dropped at this many places at least; in other stores a reply may be there at once.
    pub(crate) async fn sweep(
        &self,
        what: &str,
        at_least: usize,
        mut story: impl AsyncFnMut(DropAt) -> bool,
    ) {
        self.record_baseline();
        let mut dropped = 0;
        for at in DropAt::every() {
            if story(at).await {
                break;
            }
            dropped += 1;
        }
        if matches!(self.store, Store::Redis | Store::WithoutScripts) {
            assert!(dropped >= at_least, "{what}: dropped at {dropped} places");
        }
    }

    /// Returns the time in which everything that was dropped is cleaned up.
    fn soon(&self) -> Duration {
        match self.store {
            Store::Redis | Store::WithoutScripts | Store::Memory => A_SECOND,
            Store::File => PATIENCE,
        }
    }

    /// Returns the owners of a lock, and how often each holds it.
    async fn holds(&self, name: &str) -> BTreeMap<String, u64> {
        let seen = self.theirs.admin().inspect(name).await;
        let holders = seen.expect("the store answers").map(|info| info.holders);
        let holders = holders.into_iter().flatten();
        holders
            .map(|holder| (holder.owner, holder.hold_count))
            .collect()
    }

    /// Returns the store's queue for a lock that is held.
    async fn queue(&self, name: &str) -> Vec<String> {
        let seen = self.theirs.admin().inspect(name).await;
        let waiting = seen.expect("the store answers").map(|info| info.waiting);
        waiting.unwrap_or_default()
    }

    /// Waits until the lock is held by this guard alone, as often as the guard reports.
    pub(crate) async fn assert_held_by<K>(&self, guard: &Guard<K>) {
        let count = self.theirs.counted(guard.hold_count().into());
        let held = BTreeMap::from([(guard.owner(), count)]);
        eventually(
            self.soon(),
            &format!("the store says {held:?}"),
            async || self.holds(guard.name()).await == held,
        )
        .await;
        assert!(guard.is_held());
    }

    /// Awaits the turn of a waiter, which comes at once: the waiter is notified, and does not have to poll.
    pub(crate) async fn turn_of(&self, waiter: Waiter<F::Kind>) -> Guard<F::Kind> {
        timeout(self.soon(), waiter.turn())
            .await
            .expect("its turn comes")
    }

    /// Checks that nothing is left of a lock: not in the store, not in the clients, not among the tasks.
    pub(crate) async fn assert_gone(&self, name: &str) {
        let soon = self.soon();
        eventually(soon, &format!("`{name}` is free"), async || {
            self.holds(name).await.is_empty()
        })
        .await;
        // A request that was under way may still arrive, and is undone then.
        let guard = self.theirs.against(name).acquire_timeout(soon).await;
        let guard = guard.expect("the store answers").expect("it is free");
        eventually(soon, &format!("no owner waits for `{name}`"), async || {
            self.queue(name).await.is_empty()
        })
        .await;
        guard.release().await.expect("it is theirs");
        let what = format!("nothing is stored for `{name}`, and nobody listens");
        eventually(soon, &what, async || {
            self.keys(name).is_empty()
                && self.holds(name).await.is_empty()
                && !self.is_subscribed(name)
        })
        .await;
        for client in [&self.ours, &self.theirs] {
            eventually(soon, &format!("`{name}` is forgotten"), async || {
                if client.remembers(name) {
                    // Some entries are kept for a while and removed when another lock is acquired.
                    drop(client.lock("another").acquire().await);
                }
                !client.remembers(name)
            })
            .await;
        }
        eventually(soon, "no task is left", async || {
            let (tasks_before, connections_before) = self.at_rest.get();
            // A request without scripts may open a connection of its own, which stays.
            let added = self.connections().saturating_sub(connections_before);
            tasks() <= tasks_before + added * TASKS_OF_A_CONNECTION
        })
        .await;
    }

    /// Returns the keys of a lock, except tombstones, which expire, and the last token and the number of permits, which stay.
    fn keys(&self, name: &str) -> Vec<String> {
        let Some(server) = &self.server else {
            return Vec::new();
        };
        let mut keys = server.keys();
        keys.retain(|key| {
            let is_kept = key.starts_with("distlock_undone:") && server.pttl(key) > 0
                || key.starts_with("redisson_lock_token:")
                || F::PERMITS > 0 && key == name;
            key.contains(name) && !is_kept
        });
        keys
    }

    /// Returns whether a connection is subscribed to a lock's channel.
    pub(crate) fn is_subscribed(&self, name: &str) -> bool {
        let channels = self.server.as_ref().map(|server| server.pubsub_channels());
        let mut channels = channels.into_iter().flatten();
        channels.any(|channel| channel.contains(name))
    }

    /// Has each client wait for the other, so that all connections are made. Checks also that everything that
    /// [`assert_gone`](Self::assert_gone) looks for is there while it should be.
    async fn warm_up(&self) {
        for [holder, waiter] in [[&self.ours, &self.theirs], [&self.theirs, &self.ours]] {
            let name = self.name();
            let guard = hold(&holder.lock(name.as_str())).await;
            assert!(!self.holds(&name).await.is_empty());
            if self.server.is_some() {
                // The expiry of a reader, or of permits, is in a key of its own.
                let keys = if F::SHARED || F::PERMITS > 0 { 2 } else { 1 };
                assert_eq!(self.keys(&name).len(), keys);
            }
            // Readers and permits need no queue.
            assert!(F::SHARED || F::PERMITS > 0 || holder.remembers(&name));
            let before = tasks();
            let waiting = tokio::spawn(waiter.against(name.as_str()).acquire());
            assert_eq!(tasks(), before + 1);
            eventually(PATIENCE, "it waits", async || {
                // A writer that waits for readers is in the store's queue, too.
                let is_queued = F::IN_ORDER || F::SHARED || F::PERMITS > 1;
                waiter.remembers(&name)
                    && usize::from(is_queued) == self.queue(&name).await.len()
                    && (self.server.is_none() || self.is_subscribed(&name))
            })
            .await;
            if F::IN_ORDER && self.server.is_some() {
                assert_eq!(self.keys(&name).len(), 4, "the lock and its queue");
            }
            guard.release().await.expect("it has it");
            let guard = waiting.await.expect("no panic").expect("it is free");
            guard.release().await.expect("it has it");
        }
        self.record_baseline();
    }

    /// Records the number of tasks and connections: from here on no task may be added.
    pub(crate) fn record_baseline(&self) {
        self.at_rest.set((tasks(), self.connections()));
    }

    fn connections(&self) -> usize {
        let server = self.server.as_ref();
        let list = server.map(|server| server.query::<String>(&["CLIENT", "LIST"]));
        list.map_or(0, |list| list.lines().count())
    }
}

async fn connect<F: Family>(store: Store, url: &str, build: Build) -> Player<F> {
    let builder = match store {
        Store::Redis | Store::WithoutScripts => builder(url),
        Store::Memory | Store::File => Client::builder(url),
    };
    let builder = builder.default_lease(Lease::KeepAlive(LEASE));
    let client = build(builder).connect().await;
    Player::new(client.expect("the store is there"))
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Returns a name that is no part of another.
fn unique(what: &str) -> String {
    thread_local! {
        static NAMES: Cell<u32> = const { Cell::new(0) };
    }
    NAMES.set(NAMES.get() + 1);
    let thread = std::thread::current().id();
    format!("{what}-{thread:?}-{}-", NAMES.get())
}

/// Upper bound for the tasks of a connection's two ends, and of a proxy between them.
const TASKS_OF_A_CONNECTION: usize = 8;

pub(crate) type Build = fn(ClientBuilder) -> ClientBuilder;

pub(crate) async fn hold<K>(lock: &Lock<K>) -> Guard<K> {
    lock.acquire().await.expect("it is free")
}

pub(crate) async fn release<K>(guard: &mut Option<Guard<K>>) {
    if let Some(guard) = guard.take() {
        guard.release().await.expect("it is still held");
    }
}

/// A waiter in the background, behind all earlier ones.
pub(crate) struct Waiter<K>(JoinHandle<Result<Guard<K>, Error>>);

impl<K: 'static> Waiter<K> {
    /// Starts a waiter, which is in the queue when this returns.
    pub(crate) fn start(lock: &Lock<K>) -> Self {
        let mut acquiring = Box::pin(lock.acquire());
        assert!(begin(acquiring.as_mut()), "the lock is held");
        Self(tokio::spawn(acquiring))
    }

    pub(crate) async fn turn(self) -> Guard<K> {
        let turn = self.0.await.expect("no panic");
        turn.expect("it is free")
    }
}

/// Returns the future with a waiter that queues behind it as soon as it waits.
pub(crate) fn followed<F: Future, K: 'static>(
    future: F,
    lock: &Lock<K>,
    next: &mut Option<Waiter<K>>,
) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    poll_fn(move |cx| {
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() && next.is_none() {
            *next = Some(Waiter::start(lock));
        }
        polled
    })
}
