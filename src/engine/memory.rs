//! Locks in this process's memory: for tests, and for programs that need no store.
//!
//! One mutex over the states; the rules are `protocol/`'s own. Time is tokio's, so that a test may
//! pause it.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use foldhash::HashMap;

use self::watchers::{Reader, Watchers};
use crate::engine::ears::{Ears, wake};
use crate::engine::feed::{Feed, Inbox};
use crate::engine::names::Names;
use crate::engine::{Answer, Ear, Engine, Failure, Finding, Listener, Page, tokens};
use crate::protocol::change::{Change, changes};
use crate::protocol::line::Queue;
use crate::protocol::state::{State, Surroundings};
use crate::protocol::{Channel, FencingToken, Moment, Reply, Request};

mod watchers;

/// The states are swept of what has expired each time they have doubled since the last sweep.
const SMALLEST_SWEEP: usize = 64;

/// Reads the time the states live by.
pub type Now = Arc<dyn Fn() -> Moment + Send + Sync>;

/// One client's view of a store in memory.
pub struct Memory {
    shared: Arc<Shared>,
    prefix: Arc<str>,
    /// The client's clock is the store's: what it has just read need not be read again.
    same_clock: bool,
}

/// A store in memory, for as many clients as like.
pub struct Shared {
    now: Now,
    store: Mutex<Store>,
}

#[derive(Default)]
struct Store {
    states: HashMap<Arc<str>, State>,
    /// Who waits in line for a fair lock.
    lines: HashMap<Arc<str>, Queue>,
    sweep_at: usize,
    ears: Ears<Channel>,
    labels: HashMap<Arc<str>, Arc<str>>,
    watchers: Watchers,
    last_token: Option<FencingToken>,
}

impl Memory {
    /// An empty store of its own.
    #[cfg(feature = "internals")]
    pub fn new(now: Now) -> Self {
        Self::of(Arc::new(Shared::new(now)), "".into(), false)
    }

    /// A view of a store, with `prefix` before every name, for a client that may have the `same_clock`.
    pub const fn of(shared: Arc<Shared>, prefix: Arc<str>, same_clock: bool) -> Self {
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

    fn store(&self) -> MutexGuard<'_, Store> {
        // No code of a user's runs under this lock, so a poisoned one is whole.
        self.shared
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, request: &Request, now: Moment) -> Result<Reply, Failure> {
        let mut store = self.store();
        store.sweep(now);
        let (reply, news) = self.apply_in(&mut store, request, now);
        drop(store);
        wake(&news);
        reply
    }

    /// Carries out one request; says who is to hear of it.
    fn apply_in(
        &self,
        store: &mut Store,
        request: &Request,
        now: Moment,
    ) -> (Result<Reply, Failure>, Vec<Weak<Ear>>) {
        let listeners = if store.ears.is_empty() {
            0
        } else {
            store.listeners(&self.with_prefix(&request.subject.channel()))
        };
        let Store {
            states,
            lines,
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
        let around = Surroundings {
            now,
            listeners,
            next_token: tokens::next(request, *last_token),
        };
        let outcome = if request.subject.kind.may_have_line() || lines.contains_key(state.key()) {
            let line = lines.entry(state.key().clone()).or_default();
            let outcome = state.get_mut().apply(request, &around, line);
            if line.is_empty() {
                lines.remove(state.key());
            }
            outcome
        } else {
            state
                .get_mut()
                .apply(request, &around, &mut Queue::default())
        };
        if let Ok(Reply::Granted { token }) = outcome.reply {
            *last_token = token.max(*last_token);
        }
        if let Some(before) = before {
            let after = state.get().holders();
            let changes = changes(&before, &after, Change::by(&request.action), now);
            watchers.tell(state.key(), Some(request.subject.kind), changes, labels);
        }
        if state.get_mut().is_empty(now) {
            state.remove();
        }
        let news = outcome.news.filter(|_| !store.ears.is_empty());
        let news = news.map(|channel| self.with_prefix(&channel));
        let ears = news.map(|channel| store.ears.at(&channel).to_vec());
        let reply = outcome.reply.map_err(Failure::from);
        (reply, ears.unwrap_or_default())
    }
}

impl Engine for Memory {
    fn call(&self, request: Request) -> Answer<Result<Reply, Failure>> {
        let reply = self.apply(&request, self.now());
        Box::pin(async move { reply })
    }

    fn call_apart(self: Arc<Self>, requests: Vec<Request>) -> Answer<Vec<Result<Reply, Failure>>> {
        let now = self.now();
        let replies = requests.iter().map(|request| self.apply(request, now));
        let replies: Vec<_> = replies.collect();
        Box::pin(async move { replies })
    }

    fn place(&self) -> String {
        // Another process has others.
        format!("memory:{:p}/{}", Arc::as_ptr(&self.shared), self.prefix)
    }

    fn call_now(
        &self,
        request: &Request,
        now: &dyn Fn() -> Moment,
    ) -> Option<Result<Reply, Failure>> {
        let now = if self.same_clock { now() } else { self.now() };
        Some(self.apply(request, now))
    }

    fn listen(self: Arc<Self>, channel: Channel) -> Answer<Result<Listener, Failure>> {
        let channel = self.with_prefix(&channel);
        let ear = self.store().ears.add(channel.clone());
        let memory = self.clone();
        let gone = Arc::downgrade(&ear);
        let listener = Listener::new(ear, move || {
            memory.store().ears.remove(&channel, &gone);
        });
        Box::pin(async move { Ok(listener) })
    }

    fn overhear(self: Arc<Self>, pattern: String) -> Answer<Result<Feed, Failure>> {
        let ear = Arc::new(Ear::default());
        let inbox = Arc::new(Inbox::new(ear.clone()));
        let names = Names::new(&self.prefix, pattern);
        self.store().watchers.add(names, &inbox);
        let memory = self.clone();
        let gone = Arc::downgrade(&inbox);
        let listener = Listener::new(ear, move || memory.store().watchers.remove(&gone));
        Box::pin(async move { Ok(Feed::new(listener, Reader(inbox), 0)) })
    }

    fn find(self: Arc<Self>, pattern: String, _from: u64) -> Answer<Result<Page, Failure>> {
        let now = self.now();
        let names = Names::new(&self.prefix, pattern);
        let mut found = Vec::new();
        let mut store = self.store();
        store.tell_expired(now);
        for (key, state) in &mut store.states {
            let name = names.of_key(key);
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

    fn announce(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        _ttl: Duration,
    ) -> Answer<Result<(), Failure>> {
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
    ) -> Answer<Result<Vec<Option<String>>, Failure>> {
        let store = self.store();
        let label = |client: &String| store.labels.get(client.as_str()).map(ToString::to_string);
        let labels = clients.iter().map(label).collect();
        drop(store);
        Box::pin(async move { Ok(labels) })
    }

    fn examine(self: Arc<Self>, _probe: bool) -> Answer<Result<Vec<Finding>, Failure>> {
        let finding = Finding::ok("store", "this process's own memory");
        Box::pin(async move { Ok(vec![finding]) })
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Shared {
    /// An empty store.
    pub fn new(now: Now) -> Self {
        Self {
            now,
            store: Mutex::default(),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Store {
    fn listeners(&self, channel: &Channel) -> u32 {
        u32::try_from(self.ears.at(channel).len()).unwrap_or(u32::MAX)
    }

    /// Tells watchers of leases that have run out, before those are forgotten.
    fn tell_expired(&mut self, now: Moment) {
        if self.watchers.is_empty() {
            return;
        }
        for (key, state) in &mut self.states {
            let before = state.holders();
            state.expire(now);
            let after = state.holders();
            let changes = changes(&before, &after, Change::Released, now);
            self.watchers.tell(key, None, changes, &self.labels);
        }
    }

    /// Forgets expired holds, which nobody may ever ask for again.
    fn sweep(&mut self, now: Moment) {
        if self.states.len() >= self.sweep_at.max(SMALLEST_SWEEP) {
            self.tell_expired(now);
            self.states.retain(|_, state| !state.is_empty(now));
            self.sweep_at = self.states.len() * 2;
        }
    }
}
