//! Names of keys and channels, as Redisson has them.
//!
//! Beside its own key, a lock may have *auxiliary keys*, in the same slot: Redisson's, whose names are Redisson's, and
//! those private to distlock, which no other library reads. `NAME` is the lock's key, in braces unless it has a hash tag:
//!
//! | private key | method | content |
//! |---|---|---|
//! | `distlock_undone:NAME` | [`tombstones`](Keys::tombstones) | acquires that were undone, so that they are refused if they still arrive |
//! | `distlock_done:NAME:<client>` | [`dedup`](Keys::dedup) | outcomes of the client's changes of a counter, by number of the request |
//! | `distlock_alive:NAME` | [`alive`](Keys::alive) | until when each distlock waiter in a queue counts as alive |
//! | `distlock_line:NAME` | [`semaphore_queue`](Keys::semaphore_queue) | the queue of distlock's waiters for several permits |
//! | `distlock_writers:NAME` | [`writers`](Keys::writers) | distlock's writers that wait for a read/write lock |
//! | `distlock_clients:NAME` | [`clients`](Keys::clients) | the clients that have permits in use, by id prefix |
//!
//! Two more keys belong to no lock: `distlock_client:<client>`, the [`label`](Keys::label) of a client, and
//! `distlock_promoted`, the [`promotion_record`](Keys::promotion_record) of a server.

use std::fmt;
use std::sync::Arc;

use super::pubsub_mode::PubSubMode;
use crate::engine::name_filter::NameFilter;
use crate::protocol::{Channel, ClientId};

/// Prefix of the channels of all locks.
const CHANNEL: &str = "redisson_lock__channel:";
const READ_WRITE_CHANNEL: &str = "redisson_rwlock:";
const SEMAPHORE_CHANNEL: &str = "redisson_sc:";
/// Suffix of the keys that hold a semaphore's permits in use.
pub(crate) const PERMIT_TIMEOUTS_SUFFIX: &str = ":timeout";
const LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__{";

/// Maps lock names to keys and channels, and keys back to names.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    pubsub_mode: PubSubMode,
}

/// A key or channel in pieces: most are only written to a connection, and never put together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a>([&'a str; 4]);

impl Keys {
    /// Creates the names for a prefix, which goes before every lock's name, as a Redisson `NameMapper` would put it.
    pub(crate) const fn new(prefix: Arc<str>, pubsub_mode: PubSubMode) -> Self {
        Self {
            prefix,
            pubsub_mode,
        }
    }

    /// Returns how messages are sent to the channels.
    pub(crate) const fn pubsub_mode(&self) -> PubSubMode {
        self.pubsub_mode
    }

    /// Returns the key that holds a lock.
    pub(crate) fn lock<'a>(&'a self, name: &'a str) -> Key<'a> {
        Key(["", &self.prefix, name, ""])
    }

    /// Returns the channel where releases are published to all waiters.
    pub(crate) fn channel<'a>(&'a self, channel: &'a Channel) -> Key<'a> {
        match channel {
            Channel::ReadWrite(name) => {
                let lock = self.lock(name);
                if lock.has_brace() {
                    lock.wrapped(READ_WRITE_CHANNEL, "")
                } else {
                    lock.wrapped("redisson_rwlock:{", "}")
                }
            }
            Channel::Semaphore(name) => {
                let lock = self.lock(name);
                if lock.has_brace() {
                    lock.wrapped(SEMAPHORE_CHANNEL, "")
                } else {
                    lock.wrapped("redisson_sc:{", "}")
                }
            }
            // Redisson's latch has a rule of its own, whatever the name contains.
            Channel::Latch(name) => self.lock(name).wrapped(LATCH_CHANNEL, "}"),
            Channel::Lock(name) | Channel::Waiter(name, _) => {
                let lock = self.lock(name);
                // Redisson's brace rule: a name that contains a brace is assumed to have its own hash tag.
                if lock.has_brace() {
                    lock.wrapped(CHANNEL, "")
                } else {
                    lock.wrapped("redisson_lock__channel:{", "}")
                }
            }
        }
    }

    /// Returns the key of the tombstones of undone acquires. It is private to distlock: Redisson never reads it.
    pub(crate) fn tombstones<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_undone:", "distlock_undone:{")
    }

    /// Returns the key of Redisson's counter, which holds a fenced lock's last token and never expires.
    pub(crate) fn token<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.wrapped("redisson_lock_token:", "")
        } else {
            lock.wrapped("redisson_lock_token:{", "}")
        }
    }

    /// Returns the key of Redisson's list of the waiters of a fair lock.
    pub(crate) fn queue<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.wrapped("redisson_lock_queue:", "")
        } else {
            lock.wrapped("redisson_lock_queue:{", "}")
        }
    }

    /// Returns the key of Redisson's zset of the times when each waiter may be skipped.
    pub(crate) fn timeout<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.wrapped("redisson_lock_timeout:", "")
        } else {
            lock.wrapped("redisson_lock_timeout:{", "}")
        }
    }

    /// Returns the key of the times until which our waiters are alive. Private to distlock, as
    /// [`tombstones`](Self::tombstones).
    pub(crate) fn alive<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_alive:", "distlock_alive:{")
    }

    /// Returns the key of our writers that wait for a read/write lock. Private to distlock, as
    /// [`tombstones`](Self::tombstones).
    pub(crate) fn writers<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_writers:", "distlock_writers:{")
    }

    /// Returns the key of Redisson's zset of the permits in use.
    pub(crate) fn permit_timeouts<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.wrapped("", PERMIT_TIMEOUTS_SUFFIX)
        } else {
            lock.wrapped("{", "}:timeout")
        }
    }

    /// Returns the key of the queue of our waiters for several permits at once. Private to distlock, as
    /// [`tombstones`](Self::tombstones).
    pub(crate) fn semaphore_queue<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_line:", "distlock_line:{")
    }

    /// Returns the key of the clients that have permits in use, by the prefix of the permits' ids. Private to distlock,
    /// as [`tombstones`](Self::tombstones).
    pub(crate) fn clients<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_clients:", "distlock_clients:{")
    }

    /// Returns a key in the lock's own slot, by the rule of the servers. Names that allow no such key (`foo}bar`,
    /// `{}foo`) cannot be used in a cluster.
    fn private<'a>(&'a self, name: &'a str, bare: &'static str, braced: &'static str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.is_tagged() {
            lock.wrapped(bare, "")
        } else {
            lock.wrapped(braced, "}")
        }
    }

    /// Returns the beginning of the keys that record what each client has done to an ownerless counter; the client's
    /// uuid follows. Private to distlock, as [`tombstones`](Self::tombstones), and two names never share these
    /// keys, so a latch needs no alias check.
    pub(crate) fn dedup<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.is_tagged() {
            lock.wrapped("distlock_done:", "::")
        } else {
            lock.wrapped("distlock_done:{", "}:")
        }
    }

    /// Returns the key of the one other name that has the same auxiliary keys, if there is such a name: Redisson derives the
    /// same auxiliary keys from `x` and from `{x}`. The keys private to distlock, except [`dedup`](Self::dedup), are also
    /// the same for a name with a brace and without a hash tag, such as `a{b` and `{a{b}`. If the other key is in
    /// another slot of a cluster, the server does not report whether it exists.
    pub(crate) fn alias<'a>(&'a self, name: &'a str) -> Option<Key<'a>> {
        let lock = self.lock(name);
        if !lock.has_brace() {
            return Some(lock.wrapped("{", "}"));
        }
        let is_alias =
            |inner: &Key<'_>| !inner.has_brace() || lock.is_tagged() && !inner.is_tagged();
        self.without_braces(name).filter(is_alias).or_else(|| {
            let outer = lock.wrapped("{", "}");
            (!lock.is_tagged() && outer.is_tagged()).then_some(outer)
        })
    }

    /// Returns the text between the braces at both ends of a lock's key, if it has them.
    fn without_braces<'a>(&'a self, name: &'a str) -> Option<Key<'a>> {
        let name = name.strip_suffix('}')?;
        let (prefix, name) = if self.prefix.is_empty() {
            ("", name.strip_prefix('{')?)
        } else {
            (self.prefix.strip_prefix('{')?, name)
        };
        let is_empty = prefix.is_empty() && name.is_empty();
        (!is_empty).then_some(Key(["", prefix, name, ""]))
    }

    /// Returns the beginning of the keys that hold how long each reader's hold of a read/write lock lasts.
    pub(crate) fn reader_timeout_prefix<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock
        } else {
            lock.wrapped("{", "}")
        }
    }

    /// Returns the channel to subscribe to.
    pub(crate) fn channel_text(&self, channel: &Channel) -> String {
        match channel {
            Channel::Lock(_)
            | Channel::ReadWrite(_)
            | Channel::Semaphore(_)
            | Channel::Latch(_) => self.channel(channel).to_string(),
            Channel::Waiter(name, owner) => {
                let lock = Channel::Lock(name.clone());
                format!("{}:{owner}", self.channel(&lock))
            }
        }
    }

    /// Returns the key of a client's label. It is no lock's key, so it belongs to no lock's slot.
    pub(crate) fn label(&self, client: &str) -> String {
        format!("{}distlock_client:{client}", self.prefix)
    }

    /// Returns whether the prefix puts all locks into one slot of a cluster.
    pub(crate) fn has_one_slot(&self) -> bool {
        has_hash_tag(&self.prefix)
    }

    /// Returns the key of the promotion record: since when a promoted server is known.
    pub(crate) fn promotion_record(&self) -> String {
        format!("{}distlock_promoted", self.prefix)
    }

    /// Returns the key of the promotion record in the slot of this tag; if the prefix has a tag of its own, in that
    /// slot, where all locks are.
    pub(crate) fn promotion_record_in(&self, tag: &str) -> String {
        if self.has_one_slot() {
            return self.promotion_record();
        }
        format!("{}distlock_promoted:{{{tag}}}", self.prefix)
    }

    /// Returns the name of the semaphore whose permits in use are in this key.
    pub(crate) fn name_of_permit_timeouts<'a>(&self, key: &'a str) -> Option<&'a str> {
        let key = key.strip_suffix(PERMIT_TIMEOUTS_SUFFIX)?;
        let braced = key.strip_prefix('{').and_then(|key| key.strip_suffix('}'));
        match braced.filter(|name| !name.contains('{')) {
            Some(key) => self.name(key),
            None if key.contains('{') => self.name(key),
            None => None,
        }
    }

    /// Returns a glob for the server that matches at least every lock whose name matches `pattern`. The server's `?` is
    /// one byte and its brackets are special, so the results have to be matched again.
    pub(crate) fn scan_pattern(&self, pattern: &str) -> String {
        let mut glob = String::with_capacity(self.prefix.len() + pattern.len());
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\') {
                glob.push('\\');
            }
            glob.push(c);
        }
        let mut escaped = false;
        for c in pattern.chars() {
            match c {
                '?' if !escaped => glob.push('*'),
                '[' | ']' if !escaped => glob.extend(['\\', c]),
                c => glob.push(c),
            }
            escaped = c == '\\' && !escaped;
        }
        glob
    }

    /// Returns globs for the server that match at least the channels of every lock whose name matches `pattern`. There
    /// are six, in this order: the lock's channel with braces around the key, the channels of its single waiters, the same
    /// two without braces, then the read/write lock's channel with braces and without. If the pattern begins and ends
    /// with `*`, two of them match all that the six do: the lock's channel and the read/write lock's, both without braces.
    pub(crate) fn channel_patterns(&self, pattern: &str) -> Vec<String> {
        let key = self.scan_pattern(pattern);
        let bare = format!("{CHANNEL}{key}");
        let read_write = format!("{READ_WRITE_CHANNEL}{key}");
        if key.starts_with('*') && key.ends_with('*') && !key.ends_with("\\*") {
            return vec![bare, read_write];
        }
        let braced = format!("{CHANNEL}{{{key}}}");
        let waiters = |channel: &str| format!("{channel}:*");
        vec![
            braced.clone(),
            waiters(&braced),
            bare.clone(),
            waiters(&bare),
            format!("{READ_WRITE_CHANNEL}{{{key}}}"),
            read_write,
        ]
    }

    /// Returns globs for the server that match the channels of all locks, as
    /// [`channel_patterns`](Self::channel_patterns) does.
    pub(crate) fn all_channel_patterns() -> Vec<String> {
        vec![format!("{CHANNEL}*"), format!("{READ_WRITE_CHANNEL}*")]
    }

    /// Returns the name of the lock that a message on this channel is about, if the prefix is ours, and the index of
    /// the glob in [`channel_patterns`](Self::channel_patterns) that certainly matches it. A fair lock notifies one
    /// waiter on a channel of its own: the lock's channel, followed by the waiter's id. If two locks have the same
    /// channel (`a` and `{a}`), returns the first.
    pub(crate) fn name_of_channel<'a>(&self, channel: &'a str) -> Option<(&'a str, usize)> {
        let (channel, braced, bare) = match channel.strip_prefix(READ_WRITE_CHANNEL) {
            Some(channel) => (channel, 4, 5),
            None => {
                let whole = channel.strip_prefix(CHANNEL)?;
                match without_owner(whole) {
                    channel if channel == whole => (channel, 0, 2),
                    channel => (channel, 1, 3),
                }
            }
        };
        let key = channel
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        match key.filter(|key| !key.contains('{')) {
            Some(key) => self.name(key).map(|name| (name, braced)),
            None if channel.contains('{') => self.name(channel).map(|name| (name, bare)),
            None => None,
        }
    }

    /// Returns whether the channel notifies one waiter of a fair lock, and no other.
    pub(crate) fn is_waiter_channel(channel: &str) -> bool {
        let whole = channel.strip_prefix(CHANNEL);
        whole.is_some_and(|whole| without_owner(whole) != whole)
    }

    /// Returns a filter for the names behind our prefix that match a pattern.
    pub(crate) fn names(&self, pattern: impl Into<String>) -> NameFilter {
        NameFilter::new(&self.prefix, pattern)
    }

    /// Returns the name of the lock in this key, if the prefix is ours.
    pub(crate) fn name<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&*self.prefix)
    }
}

impl<'a> Key<'a> {
    /// Returns the text, piece by piece.
    pub(crate) const fn pieces(&self) -> &[&'a str] {
        &self.0
    }

    fn has_brace(&self) -> bool {
        self.0.iter().any(|piece| piece.contains('{'))
    }

    /// Returns whether servers use a part of this key as its hash tag.
    fn is_tagged(&self) -> bool {
        self.has_brace() && has_hash_tag(&self.to_string())
    }

    const fn wrapped(self, before: &'static str, suffix: &'static str) -> Self {
        let [_, prefix, name, _] = self.0;
        Key([before, prefix, name, suffix])
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| f.write_str(piece))
    }
}

/// Returns a channel without the id of the waiter it is for, if it is for one.
fn without_owner(channel: &str) -> &str {
    let mut parts = channel.rsplitn(3, ':');
    let (number, client, rest) = (parts.next(), parts.next(), parts.next());
    match (number, client, rest) {
        (Some(number), Some(client), Some(rest))
            if number.parse::<i64>().is_ok() && ClientId::parse(client).is_some() =>
        {
            rest
        }
        _ => channel,
    }
}

/// Returns whether servers use a part of this key for its slot: the text between the first brace and the first closing
/// brace after it, if it is not empty.
fn has_hash_tag(key: &str) -> bool {
    let Some((_, suffix)) = key.split_once('{') else {
        return false;
    };
    suffix.find('}').is_some_and(|length| length > 0)
}

#[cfg(test)]
mod tests;
