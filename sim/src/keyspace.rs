//! The databases: keys with values that expire, and the connections that watch them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use crate::failure::Failure;
use crate::ordered_map::OrderedMap;
use crate::replication::Changed;
use crate::sorted_set::SortedSet;

/// A key's value.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(OrderedMap),
    Set(BTreeSet<Vec<u8>>),
    SortedSet(SortedSet),
}

impl Data {
    pub(crate) const fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
            Self::SortedSet(_) => "zset",
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::List(list) => list.is_empty(),
            Self::Hash(hash) => hash.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::SortedSet(set) => set.is_empty(),
        }
    }
}

/// One of the types that a value can have.
pub(crate) trait Typed: Default {
    fn of(data: &Data) -> Option<&Self>;
    fn of_mut(data: &mut Data) -> Option<&mut Self>;
    fn wrap(self) -> Data;
}

macro_rules! typed {
    ($type:ty, $variant:ident) => {
        impl Typed for $type {
            fn of(data: &Data) -> Option<&Self> {
                if let Data::$variant(value) = data {
                    Some(value)
                } else {
                    None
                }
            }

            fn of_mut(data: &mut Data) -> Option<&mut Self> {
                if let Data::$variant(value) = data {
                    Some(value)
                } else {
                    None
                }
            }

            fn wrap(self) -> Data {
                Data::$variant(self)
            }
        }
    };
}

typed!(Vec<u8>, Text);
typed!(VecDeque<Vec<u8>>, List);
typed!(OrderedMap, Hash);
typed!(BTreeSet<Vec<u8>>, Set);
typed!(SortedSet, SortedSet);

/// A value and its expiry, in milliseconds since 1970.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) data: Data,
    pub(crate) expires: Option<u64>,
}

/// One connection's interest in a key.
#[derive(Clone, Debug)]
struct Watched {
    client: u64,
    /// The key had expired when it was watched, and was not yet removed: its removal changes nothing.
    was_expired: bool,
}

/// All databases. A command sees the one that was selected for it.
#[derive(Debug)]
pub(crate) struct Keyspace {
    databases: Vec<BTreeMap<Vec<u8>, Entry>>,
    selected: usize,
    now: u64,
    watched: BTreeMap<(usize, Vec<u8>), Vec<Watched>>,
    /// Changes that have not been sent to replicas.
    changed: Changed,
    /// Connections whose transactions must not be executed.
    pub(crate) dirty: BTreeSet<u64>,
}

impl Keyspace {
    pub(crate) fn new() -> Self {
        Self {
            databases: vec![BTreeMap::new(); DATABASES],
            selected: 0,
            now: 0,
            watched: BTreeMap::new(),
            changed: Changed::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Selects the database and the time of the commands that follow.
    pub(crate) const fn select(&mut self, database: usize, now: u64) {
        self.selected = database;
        self.now = now;
    }

    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    fn is_expired(&self, database: usize, key: &[u8]) -> bool {
        let entry = self.databases[database].get(key);
        entry.is_some_and(|entry| entry.expires.is_some_and(|expires| self.now > expires))
    }

    fn expire(&mut self, key: &[u8]) {
        if self.is_expired(self.selected, key) {
            self.databases[self.selected].remove(key);
            self.touch(key);
        }
    }

    /// Returns the entry of a key that has not expired.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.expire(key);
        self.databases[self.selected].get_mut(key)
    }

    pub(crate) fn exists(&mut self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// Returns a key's value if it has this type, and `None` if there is no key.
    pub(crate) fn read<T: Typed>(&mut self, key: &[u8]) -> Result<Option<&T>, Failure> {
        match self.get(key) {
            None => Ok(None),
            Some(entry) => T::of(&entry.data).map(Some).ok_or_else(Failure::wrong_type),
        }
    }

    /// Returns a key's value to be changed, like [`Self::read`]. The caller has to call [`Self::changed`] afterwards.
    pub(crate) fn write<T: Typed>(&mut self, key: &[u8]) -> Result<Option<&mut T>, Failure> {
        match self.get(key) {
            None => Ok(None),
            Some(entry) => T::of_mut(&mut entry.data)
                .map(Some)
                .ok_or_else(Failure::wrong_type),
        }
    }

    /// Returns a key's value to be changed, like [`Self::write`], and creates the key if there is none.
    pub(crate) fn create<T: Typed>(&mut self, key: &[u8]) -> Result<&mut T, Failure> {
        self.expire(key);
        let entry = self.databases[self.selected]
            .entry(key.to_vec())
            .or_insert_with(|| Entry {
                data: T::default().wrap(),
                expires: None,
            });
        T::of_mut(&mut entry.data).ok_or_else(Failure::wrong_type)
    }

    /// Sets a key, whatever its value was.
    pub(crate) fn set(&mut self, key: &[u8], entry: Entry) {
        self.databases[self.selected].insert(key.to_vec(), entry);
        self.touch(key);
    }

    /// Removes a key, and returns its entry.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        self.expire(key);
        let entry = self.databases[self.selected].remove(key)?;
        self.touch(key);
        Some(entry)
    }

    /// Removes the key if it has become empty, and notifies the connections that watch it.
    pub(crate) fn changed(&mut self, key: &[u8]) {
        let database = &mut self.databases[self.selected];
        if database.get(key).is_some_and(|entry| entry.data.is_empty()) {
            database.remove(key);
        }
        self.touch(key);
    }

    /// Returns the keys of the selected database that have not expired, in the order of their bytes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Vec<u8>, &Entry)> {
        self.entries_of(self.selected)
    }

    /// Returns the keys of a database that have not expired.
    pub(crate) fn entries_of(&self, database: usize) -> impl Iterator<Item = (&Vec<u8>, &Entry)> {
        let now = self.now;
        let entries = self.databases[database].iter();
        entries.filter(move |(_, entry)| entry.expires.is_none_or(|expires| now <= expires))
    }

    /// Counts the keys of the selected database, including expired keys that are still stored.
    pub(crate) fn len(&self) -> usize {
        self.databases[self.selected].len()
    }

    pub(crate) fn flush(&mut self, all: bool) {
        let selected = self.selected;
        for database in 0..DATABASES {
            if !all && database != selected {
                continue;
            }
            let entries = std::mem::take(&mut self.databases[database]);
            self.selected = database;
            for key in entries.keys() {
                self.touch(key);
            }
        }
        self.selected = selected;
    }

    /// Watches a key of the selected database for a connection.
    pub(crate) fn watch(&mut self, client: u64, key: &[u8]) {
        let was_expired = self.is_expired(self.selected, key);
        let watchers = self
            .watched
            .entry((self.selected, key.to_vec()))
            .or_default();
        if watchers.iter().all(|watched| watched.client != client) {
            watchers.push(Watched {
                client,
                was_expired,
            });
        }
    }

    /// Ends a connection's interest in all keys.
    pub(crate) fn unwatch(&mut self, client: u64) {
        self.watched.retain(|_, watchers| {
            watchers.retain(|watched| watched.client != client);
            !watchers.is_empty()
        });
        self.dirty.remove(&client);
    }

    /// Ends the interest of all connections, as a restart does.
    pub(crate) fn forget_watches(&mut self) {
        self.watched.clear();
        self.dirty.clear();
    }

    /// Returns whether a key that a connection watches has expired since.
    pub(crate) fn has_expired_watched(&self, client: u64) -> bool {
        self.watched.iter().any(|((database, key), watchers)| {
            let mut watchers = watchers.iter();
            let watched = watchers.find(|watched| watched.client == client);
            watched.is_some_and(|watched| !watched.was_expired && self.is_expired(*database, key))
        })
    }

    fn touch(&mut self, key: &[u8]) {
        self.changed.insert((self.selected, key.to_vec()));
        if self.watched.is_empty() {
            return;
        }
        let place = (self.selected, key.to_vec());
        let is_gone = !self.databases[self.selected].contains_key(key);
        for watched in self.watched.get_mut(&place).into_iter().flatten() {
            if watched.was_expired && is_gone {
                watched.was_expired = false;
            } else if !watched.was_expired {
                self.dirty.insert(watched.client);
            }
        }
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// Returns these keys as they are now.
    pub(crate) fn copies(&self, changed: &Changed) -> Vec<(usize, Vec<u8>, Option<Entry>)> {
        let copies = changed.iter().map(|(database, key)| {
            let entry = self.databases[*database].get(key).cloned();
            (*database, key.clone(), entry)
        });
        copies.collect()
    }

    /// Sets or removes a key of any database.
    pub(crate) fn replace(&mut self, database: usize, key: &[u8], entry: Option<Entry>) {
        let selected = std::mem::replace(&mut self.selected, database);
        if let Some(entry) = entry {
            self.set(key, entry);
        } else {
            self.databases[database].remove(key);
            self.touch(key);
        }
        self.selected = selected;
    }

    /// Takes over all databases of another.
    pub(crate) fn become_copy_of(&mut self, other: &Self) {
        self.flush(true);
        self.databases.clone_from(&other.databases);
        self.changed.clear();
    }

    /// Returns up to this number of keys, and the keys that share a hash with the last of them, in the order of their hashes, and the hash
    /// to continue from; 0 at the end.
    pub(crate) fn page(&self, cursor: u64, count: usize) -> (u64, Vec<Vec<u8>>) {
        let mut hashed: BTreeMap<u64, Vec<&Vec<u8>>> = BTreeMap::new();
        for (key, _) in self.keys() {
            hashed.entry(scan_hash(key)).or_default().push(key);
        }
        let mut found = Vec::new();
        for (hash, keys) in hashed.range((Bound::Included(cursor), Bound::Unbounded)) {
            if found.len() >= count {
                return (*hash, found);
            }
            found.extend(keys.iter().map(|key| (*key).clone()));
        }
        (0, found)
    }
}

/// The number of databases, which is Redis' default.
pub(crate) const DATABASES: usize = 16;

/// Returns the position of a key in a scan (FNV-1a): an order that looks random and is the same in every run. 0 is the cursor at which a
/// scan begins and ends.
fn scan_hash(key: &[u8]) -> u64 {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 16).max(1)
}
