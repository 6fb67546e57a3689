//! Locks in this process's memory: for tests, and for programs that need no store.
//!
//! One mutex over the states; the rules are `protocol/`'s own. Time is tokio's, so that a test may
//! pause it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::engine::glob;
use crate::engine::{Answer, Ear, Engine, Failure, Listener};
use crate::protocol::state::State;
use crate::protocol::{Action, Kind, Moment, Reply, Request, Subject};

/// The states are swept of what has expired each time they have doubled since the last sweep.
const SMALLEST_SWEEP: usize = 64;

/// Reads the time the states live by.
pub type Now = Arc<dyn Fn() -> Moment + Send + Sync>;

/// One client's view of a store in memory.
pub struct Memory {
    shared: Arc<Shared>,
    prefix: Arc<str>,
}

/// A store in memory, for as many clients as like.
pub struct Shared {
    now: Now,
    store: Mutex<Store>,
}

#[derive(Default)]
struct Store {
    states: HashMap<Arc<str>, State>,
    sweep_at: usize,
    ears: HashMap<Subject, Vec<Weak<Ear>>>,
    labels: HashMap<Arc<str>, Arc<str>>,
}

impl Memory {
    /// An empty store of its own.
    #[cfg(feature = "internals")]
    pub fn new(now: Now) -> Self {
        Self::of(Arc::new(Shared::new(now)), "".into())
    }

    /// A view of a store, with `prefix` before every name.
    pub const fn of(shared: Arc<Shared>, prefix: Arc<str>) -> Self {
        Self { shared, prefix }
    }

    fn with_prefix(&self, subject: &Subject) -> Subject {
        if self.prefix.is_empty() {
            return subject.clone();
        }
        Subject::new(subject.kind, format!("{}{}", self.prefix, subject.name))
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

    fn apply(&self, request: &Request) -> Reply {
        let now = self.now();
        let mut store = self.store();
        store.sweep(now);
        let subject = self.with_prefix(&request.subject);
        let listeners = store.listeners(&subject);
        let state = store.states.entry(subject.name.clone()).or_default();
        let outcome = state.apply(request, now, listeners);
        if state.is_empty(now) {
            store.states.remove(&subject.name);
        }
        let ears = if outcome.notify {
            store.ears.get(&subject).cloned().unwrap_or_default()
        } else {
            Vec::new()
        };
        drop(store);
        for ear in ears.iter().filter_map(Weak::upgrade) {
            ear.tell();
        }
        outcome.reply
    }

    fn forget(&self, subject: &Subject) {
        let mut store = self.store();
        if store.listeners(subject) == 0 {
            store.ears.remove(subject);
        }
    }
}

impl Engine for Memory {
    fn call(self: Arc<Self>, request: Request) -> Answer<Result<Reply, Failure>> {
        let reply = self.apply(&request);
        Box::pin(async move { Ok(reply) })
    }

    fn call_apart(self: Arc<Self>, requests: Vec<Request>) -> Answer<Vec<Result<Reply, Failure>>> {
        let replies = requests.iter().map(|request| Ok(self.apply(request)));
        let replies: Vec<_> = replies.collect();
        Box::pin(async move { replies })
    }

    fn call_now(&self, request: &Request) -> Option<Reply> {
        Some(self.apply(request))
    }

    fn listen(self: Arc<Self>, subject: Subject) -> Answer<Result<Listener, Failure>> {
        let ear = Arc::new(Ear::default());
        let subject = self.with_prefix(&subject);
        let mut store = self.store();
        let ears = store.ears.entry(subject.clone()).or_default();
        ears.push(Arc::downgrade(&ear));
        drop(store);
        let memory = self.clone();
        let gone = Arc::downgrade(&ear);
        let listener = Listener::new(ear, move || {
            // The listener still holds its ear while this runs: take it out by hand.
            if let Some(ears) = memory.store().ears.get_mut(&subject) {
                ears.retain(|ear| !ear.ptr_eq(&gone));
            }
            memory.forget(&subject);
        });
        Box::pin(async move { Ok(listener) })
    }

    fn find(self: Arc<Self>, pattern: String) -> Answer<Result<Vec<Subject>, Failure>> {
        let now = self.now();
        let mut found = Vec::new();
        for (name, state) in &mut self.store().states {
            let Some(name) = name.strip_prefix(&*self.prefix) else {
                continue;
            };
            let subject = Subject::new(Kind::Mutex, name);
            let held = state.apply(&subject.request(Action::Inspect), now, 0);
            if held.reply != Reply::Inspected(None) && glob::matches(&pattern, name) {
                found.push(subject);
            }
        }
        Box::pin(async move { Ok(found) })
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
    fn listeners(&self, subject: &Subject) -> u32 {
        let ears = self.ears.get(subject).map_or(0, Vec::len);
        u32::try_from(ears).unwrap_or(u32::MAX)
    }

    /// Expired holds that nobody asks for any more would otherwise stay for ever.
    fn sweep(&mut self, now: Moment) {
        if self.states.len() >= self.sweep_at.max(SMALLEST_SWEEP) {
            self.states.retain(|_, state| !state.is_empty(now));
            self.sweep_at = self.states.len() * 2;
        }
    }
}
