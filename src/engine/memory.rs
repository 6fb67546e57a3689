//! Locks in this process's memory: for tests, and for programs that need no store.
//!
//! One mutex protects the states; the rules are those of `protocol/`. The clock is tokio's, so that
//! a test may pause it.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use foldhash::HashMap;

use self::watchers::{WatcherSource, Watchers};
use crate::engine::change_feed::{ChangeFeed, FeedBuffer};
use crate::engine::name_filter::NameFilter;
use crate::engine::subscriber_map::{SubscriberMap, notify_all};
use crate::engine::{
    BoxFuture, Diagnostic, Engine, Page, StoreError, Subscriber, Subscription, tokens,
};
use crate::protocol::change::{Change, changes};
use crate::protocol::state::{ApplyContext, State};
use crate::protocol::store_queue::MemoryQueue;
use crate::protocol::{Channel, FencingToken, Moment, Reply, Request};

mod watchers;

/// The least number of states that is swept. Expired states are removed each time the number has
/// doubled since the last sweep.
const MIN_SWEEP: usize = 64;

/// Reads the clock of the leases.
pub type Now = Arc<dyn Fn() -> Moment + Send + Sync>;

/// One client's view of a store in memory.
pub struct Memory {
    shared: Arc<MemoryStore>,
    prefix: Arc<str>,
    /// Whether the client's clock is the store's: a time that it has just read need not be read
    /// again.
    same_clock: bool,
}

/// A store in memory, for any number of clients.
pub struct MemoryStore {
    now: Now,
    store: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    states: HashMap<Arc<str>, State>,
    /// The queues of waiters.
    queues: HashMap<Arc<str>, MemoryQueue>,
    sweep_at: usize,
    subscribers: SubscriberMap<Channel>,
    labels: HashMap<Arc<str>, Arc<str>>,
    watchers: Watchers,
    last_token: Option<FencingToken>,
}

impl Memory {
    /// Creates an empty store of its own.
    #[cfg(feature = "internals")]
    pub fn new(now: Now) -> Self {
        Self::of(Arc::new(MemoryStore::new(now)), "".into(), false)
    }

    /// Creates a view of a store, with `prefix` before every name, for a client that may have the
    /// `same_clock`.
    pub const fn of(shared: Arc<MemoryStore>, prefix: Arc<str>, same_clock: bool) -> Self {
        Self {
            shared,
            prefix,
            same_clock,
        }
    }

    fn key(&self, name: &Arc<str>) -> Arc<str> {
        if self.prefix.is_empty() {
            return name.clone();
        }
        format!("{}{name}", self.prefix).into()
    }

    fn with_prefix(&self, channel: &Channel) -> Channel {
        channel.of(|name| self.key(name))
    }

    fn now(&self) -> Moment {
        (self.shared.now)()
    }

    fn store(&self) -> MutexGuard<'_, MemoryState> {
        // No user code runs under this lock, so the state behind a poisoned mutex is consistent.
        self.shared
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, request: &Request, now: Moment) -> Result<Reply, StoreError> {
        let mut store = self.store();
        store.sweep(now);
        let (reply, to_notify) = self.apply_in(&mut store, request, now);
        drop(store);
        notify_all(&to_notify);
        reply
    }

    /// Executes one request; returns the reply and the subscribers to notify.
    fn apply_in(
        &self,
        store: &mut MemoryState,
        request: &Request,
        now: Moment,
    ) -> (Result<Reply, StoreError>, Vec<Weak<Subscriber>>) {
        let subscribers = if store.subscribers.is_empty() {
            0
        } else {
            store.subscriber_count(&self.with_prefix(&request.subject.channel()))
        };
        let MemoryState {
            states,
            queues,
            labels,
            watchers,
            last_token,
            ..
        } = &mut *store;
        let mut state = match states.entry(self.key(&request.subject.name)) {
            Entry::Occupied(state) => state,
            Entry::Vacant(free) => free.insert_entry(State::default()),
        };
        let before = (!watchers.is_empty()).then(|| state.get().holders());
        let ctx = ApplyContext {
            now,
            subscribers,
            next_token: tokens::next_token(request, *last_token),
        };
        let outcome =
            if request.subject.kind.may_have_server_queue() || queues.contains_key(state.key()) {
                let queue = queues.entry(state.key().clone()).or_default();
                let outcome = state.get_mut().apply(request, &ctx, queue);
                if queue.is_empty() {
                    queues.remove(state.key());
                }
                outcome
            } else {
                state
                    .get_mut()
                    .apply(request, &ctx, &mut MemoryQueue::default())
            };
        if let Ok(Reply::Granted { token }) = outcome.reply {
            *last_token = token.max(*last_token);
        }
        if let Some(before) = before {
            let after = state.get().holders();
            let changes = changes(&before, &after, Change::by(&request.action), now);
            watchers.notify(state.key(), Some(request.subject.kind), changes, labels);
        }
        if state.get_mut().is_empty(now) {
            state.remove();
        }
        let released = outcome.notify.filter(|_| !store.subscribers.is_empty());
        let released = released.map(|channel| self.with_prefix(&channel));
        let subscribers = released.map(|channel| store.subscribers.of_channel(&channel).to_vec());
        let reply = outcome.reply.map_err(StoreError::from);
        (reply, subscribers.unwrap_or_default())
    }
}

impl Engine for Memory {
    fn call(&self, request: Request) -> BoxFuture<Result<Reply, StoreError>> {
        let reply = self.apply(&request, self.now());
        Box::pin(async move { reply })
    }

    fn call_background(
        self: Arc<Self>,
        requests: Vec<Request>,
    ) -> BoxFuture<Vec<Result<Reply, StoreError>>> {
        let now = self.now();
        let replies = requests.iter().map(|request| self.apply(request, now));
        let replies: Vec<_> = replies.collect();
        Box::pin(async move { replies })
    }

    fn namespace_id(&self) -> String {
        // Another process has other stores.
        format!("memory:{:p}/{}", Arc::as_ptr(&self.shared), self.prefix)
    }

    fn call_now(
        &self,
        request: &Request,
        now: &dyn Fn() -> Moment,
    ) -> Option<Result<Reply, StoreError>> {
        let now = if self.same_clock { now() } else { self.now() };
        Some(self.apply(request, now))
    }

    fn subscribe(self: Arc<Self>, channel: Channel) -> BoxFuture<Result<Subscription, StoreError>> {
        let channel = self.with_prefix(&channel);
        let subscriber = self.store().subscribers.add(channel.clone());
        let memory = self.clone();
        let weak_subscriber = Arc::downgrade(&subscriber);
        let subscription = Subscription::new(subscriber, move || {
            memory
                .store()
                .subscribers
                .remove(&channel, &weak_subscriber);
        });
        Box::pin(async move { Ok(subscription) })
    }

    fn monitor(self: Arc<Self>, pattern: String) -> BoxFuture<Result<ChangeFeed, StoreError>> {
        let subscriber = Arc::new(Subscriber::default());
        let buffer = Arc::new(FeedBuffer::new(subscriber.clone()));
        let names = NameFilter::new(&self.prefix, pattern);
        self.store().watchers.add(names, &buffer);
        let memory = self.clone();
        let weak_buffer = Arc::downgrade(&buffer);
        let subscription = Subscription::new(subscriber, move || {
            memory.store().watchers.remove(&weak_buffer)
        });
        Box::pin(async move { Ok(ChangeFeed::new(subscription, WatcherSource(buffer), 0)) })
    }

    fn scan(self: Arc<Self>, pattern: String, _from: u64) -> BoxFuture<Result<Page, StoreError>> {
        let now = self.now();
        let names = NameFilter::new(&self.prefix, pattern);
        let mut found = Vec::new();
        let mut store = self.store();
        store.notify_expired(now);
        for (key, state) in &mut store.states {
            let name = names.name_of(key);
            found.extend(name.and_then(|name| state.held(name, now)));
        }
        drop(store);
        Box::pin(async move {
            Ok(Page {
                found,
                ..Page::default()
            })
        })
    }

    fn set_label(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        _ttl: Duration,
    ) -> BoxFuture<Result<(), StoreError>> {
        let mut store = self.store();
        match label {
            Some(label) => store.labels.insert(client, label),
            None => store.labels.remove(&client),
        };
        drop(store);
        Box::pin(async { Ok(()) })
    }

    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> BoxFuture<Result<Vec<Option<String>>, StoreError>> {
        let store = self.store();
        let label = |client: &String| store.labels.get(client.as_str()).map(ToString::to_string);
        let labels = clients.iter().map(label).collect();
        drop(store);
        Box::pin(async move { Ok(labels) })
    }

    fn diagnose(self: Arc<Self>, _probe: bool) -> BoxFuture<Result<Vec<Diagnostic>, StoreError>> {
        let diagnostic = Diagnostic::ok("store", "the memory of this process");
        Box::pin(async move { Ok(vec![diagnostic]) })
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new(now: Now) -> Self {
        Self {
            now,
            store: Mutex::default(),
        }
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryState {
    fn subscriber_count(&self, channel: &Channel) -> u32 {
        u32::try_from(self.subscribers.of_channel(channel).len()).unwrap_or(u32::MAX)
    }

    /// Notifies watchers of expired leases before these are removed.
    fn notify_expired(&mut self, now: Moment) {
        if self.watchers.is_empty() {
            return;
        }
        for (key, state) in &mut self.states {
            let before = state.holders();
            state.expire(now);
            let after = state.holders();
            let changes = changes(&before, &after, Change::Released, now);
            self.watchers.notify(key, None, changes, &self.labels);
        }
    }

    /// Removes expired holds, which no request may ever name again.
    fn sweep(&mut self, now: Moment) {
        if self.states.len() >= self.sweep_at.max(MIN_SWEEP) {
            self.notify_expired(now);
            self.states.retain(|_, state| !state.is_empty(now));
            self.sweep_at = self.states.len() * 2;
        }
    }
}
