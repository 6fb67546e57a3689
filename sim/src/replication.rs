//! Replication: the writes of a master, on their way to its replicas.
//!
//! A replica is sent whole keys. At any moment it has received everything that the master had written one lag before; the rest is lost if
//! it is promoted then.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::core::Core;
use crate::keyspace::Entry;

/// A key after a write, with its database first; `None` if the key is gone.
type Change = (usize, Vec<u8>, Option<Entry>);

/// The link from a master to one of its replicas.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    state: Arc<Mutex<State>>,
    /// The addresses of the master and the replica, as `INFO` and `ROLE` report them.
    pub(crate) master: (String, u16),
    pub(crate) replica: (String, u16),
}

#[derive(Debug)]
struct State {
    /// Writes that the replica has not received, each with the master's offset behind it.
    pending: VecDeque<(u64, Instant, Vec<Change>)>,
    /// The offset up to which everything was received.
    received: u64,
    lag: Duration,
    /// The moment since which nothing has arrived.
    cut: Option<Instant>,
    /// The link has ended: the replica was promoted, or follows another master.
    is_over: bool,
}

impl Link {
    fn new(master: &Core, replica: &Core, lag: Duration) -> Self {
        let state = State {
            pending: VecDeque::new(),
            received: master.offset,
            lag,
            cut: None,
            is_over: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            master: master.address.clone(),
            replica: replica.address.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.cut.get_or_insert_with(Instant::now);
    }

    pub(crate) fn is_up(&self) -> bool {
        let state = self.state();
        state.cut.is_none() && !state.is_over
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    pub(crate) fn set_lag(&self, lag: Duration) {
        self.state().lag = lag;
    }

    pub(crate) fn set_cut(&self, is_cut: bool) {
        let mut state = self.state();
        let since = *state.cut.get_or_insert_with(Instant::now);
        if !state.is_over {
            state.cut = is_cut.then_some(since);
        }
    }

    fn send(&self, offset: u64, changes: Vec<Change>) {
        self.state()
            .pending
            .push_back((offset, Instant::now(), changes));
    }

    /// Removes and returns the changes that have arrived by now.
    fn arrived(&self) -> Vec<Change> {
        let mut state = self.state();
        let (until, lag) = (state.until(), state.lag);
        let mut found = Vec::new();
        while state
            .pending
            .front()
            .is_some_and(|item| item.1 + lag <= until)
        {
            if let Some((offset, _, changes)) = state.pending.pop_front() {
                state.received = offset;
                found.extend(changes);
            }
        }
        found
    }

    /// Returns the offset that the replica has acknowledged by now.
    pub(crate) fn acknowledged(&self) -> u64 {
        let state = self.state();
        let until = state.until();
        let arrived = state
            .pending
            .iter()
            .take_while(|item| item.1 + state.lag <= until);
        arrived.last().map_or(state.received, |item| item.0)
    }

    /// Returns when the replica will have received everything up to an offset, if nothing happens to it.
    pub(crate) fn arrival(&self, offset: u64) -> Option<Instant> {
        let state = self.state();
        if state.cut.is_some() || state.is_over {
            return None;
        }
        let item = state.pending.iter().find(|item| item.0 >= offset);
        item.map(|item| item.1 + state.lag)
    }
}

impl State {
    /// Returns the moment up to which messages have arrived: now, or when the link was cut.
    fn until(&self) -> Instant {
        self.cut.unwrap_or_else(Instant::now)
    }
}

impl Core {
    /// Returns whether the server follows a master, or refuses writes as if it did.
    pub(crate) fn is_replica(&self) -> bool {
        let view = self.cluster.as_ref();
        self.fault == Some(crate::Fault::ReadOnly)
            || self.master.is_some()
            || view.is_some_and(|view| view.master().is_some())
    }

    /// Applies the changes that have arrived from the master.
    pub(crate) fn catch_up(&mut self) {
        let Some(link) = &self.master else { return };
        let changes = link.arrived();
        self.offset = self.offset.max(link.acknowledged());
        for (database, key, entry) in changes {
            self.keyspace.replace(database, &key, entry);
        }
        self.keyspace.take_changed();
    }

    /// Sends the replicas the writes since the last call. Returns whether there were any.
    pub(crate) fn replicate(&mut self) -> bool {
        let changed = self.keyspace.take_changed();
        if changed.is_empty() {
            return false;
        }
        self.offset += u64::try_from(changed.len()).unwrap_or(1) * 100;
        self.replicas.retain(|link| !link.is_over());
        for link in &self.replicas {
            link.send(self.offset, self.keyspace.copies(&changed));
        }
        true
    }

    /// Begins to follow another server with all of its data.
    pub(crate) fn follow(&mut self, master: &mut Self, lag: Duration) {
        self.stop_following();
        for link in self.replicas.drain(..) {
            link.end();
        }
        let link = Link::new(master, self, lag);
        master.replicas.push(link.clone());
        self.keyspace.become_copy_of(&master.keyspace);
        self.offset = master.offset;
        self.replication_id.clone_from(&master.replication_id);
        self.replication_id_before
            .clone_from(&master.replication_id_before);
        self.master = Some(link);
    }

    /// Becomes a master with the data that has arrived by now.
    pub(crate) fn promote(&mut self) {
        self.catch_up();
        if self.stop_following() {
            let new = self.random.run_id();
            self.replication_id_before = std::mem::replace(&mut self.replication_id, new);
        }
    }

    /// Cuts all links, as the death of the server does, or restores them.
    pub(crate) fn cut_links(&mut self, is_cut: bool) {
        for link in self.replicas.iter().chain(&self.master) {
            link.set_cut(is_cut);
        }
    }

    fn stop_following(&mut self) -> bool {
        let master = self.master.take();
        if let Some(link) = &master {
            link.end();
        }
        master.is_some()
    }

    /// Counts the replicas that have received everything up to an offset.
    pub(crate) fn acknowledgements(&self, offset: u64) -> usize {
        let links = self.replicas.iter().filter(|link| !link.is_over());
        links.filter(|link| link.acknowledged() >= offset).count()
    }

    /// Returns when this many replicas will have received everything up to an offset.
    pub(crate) fn acknowledged_at(&self, offset: u64, wanted: usize) -> Option<Instant> {
        let links = self.replicas.iter();
        let mut moments: Vec<Instant> = links.filter_map(|link| link.arrival(offset)).collect();
        moments.sort();
        let missing = wanted.checked_sub(self.acknowledgements(offset))?;
        moments.get(missing.checked_sub(1)?).copied()
    }
}

/// The keys that were changed: their databases and names.
pub(crate) type Changed = BTreeSet<(usize, Vec<u8>)>;
