//! Redisson's names for keys and channels.

use std::fmt;
use std::sync::Arc;

use super::pubsub_mode::PubSubMode;
use crate::engine::name_filter::NameFilter;
use crate::protocol::{Channel, ClientId};

/// What the channels of all locks begin with.
const CHANNEL: &str = "redisson_lock__channel:";
const SHARED_CHANNEL: &str = "redisson_rwlock:";
const SEMAPHORE_CHANNEL: &str = "redisson_sc:";
/// What the keys end with in which a semaphore's permits are that are out.
pub(crate) const PERMIT_TIMEOUTS_SUFFIX: &str = ":timeout";
const LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__{";

/// Turns lock names into keys and channels, and keys back into names.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    pubsub_mode: PubSubMode,
}

/// A key or channel, not yet put together: most are only ever written to a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a>([&'a str; 4]);

impl Keys {
    /// `prefix` goes before every lock's name, as a Redisson `NameMapper` would put it.
    pub(crate) const fn new(prefix: Arc<str>, pubsub_mode: PubSubMode) -> Self {
        Self {
            prefix,
            pubsub_mode,
        }
    }

    /// How messages are sent to those channels.
    pub(crate) const fn pubsub_mode(&self) -> PubSubMode {
        self.pubsub_mode
    }

    /// The hash a lock lives in.
    pub(crate) fn lock<'a>(&'a self, name: &'a str) -> Key<'a> {
        Key(["", &self.prefix, name, ""])
    }

    /// Where releases are announced, to all who wait.
    pub(crate) fn channel<'a>(&'a self, channel: &'a Channel) -> Key<'a> {
        match channel {
            Channel::ReadWrite(name) => {
                let lock = self.lock(name);
                if lock.has_brace() {
                    lock.wrapped(SHARED_CHANNEL, "")
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
            // Whatever is in the name: Redisson's latch has a rule of its own.
            Channel::Latch(name) => self.lock(name).wrapped(LATCH_CHANNEL, "}"),
            Channel::Lock(name) | Channel::Waiter(name, _) => {
                let lock = self.lock(name);
                // Redisson's brace rule: a name with a brace in it is taken to carry its own hash tag.
                if lock.has_brace() {
                    lock.wrapped(CHANNEL, "")
                } else {
                    lock.wrapped("redisson_lock__channel:{", "}")
                }
            }
        }
    }

    /// The acquires that were taken back before they came. Private to us: Redisson never looks at it.
    pub(crate) fn tombstones<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_undone:", "distlock_undone:{")
    }

    /// Where a fenced lock's last token is, for ever: Redisson's counter.
    pub(crate) fn token<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.wrapped("redisson_lock_token:", "")
        } else {
            lock.wrapped("redisson_lock_token:{", "}")
        }
    }

    /// Redisson's list of those who wait for a fair lock.
    pub(crate) fn queue<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.wrapped("redisson_lock_queue:", "")
        } else {
            lock.wrapped("redisson_lock_queue:{", "}")
        }
    }

    /// Redisson's zset of when each of them may be passed over.
    pub(crate) fn timeout<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.wrapped("redisson_lock_timeout:", "")
        } else {
            lock.wrapped("redisson_lock_timeout:{", "}")
        }
    }

    /// Until when those of ours are there. Private to us, as [`undone`](Self::undone).
    pub(crate) fn alive<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_alive:", "distlock_alive:{")
    }

    /// The writers of ours that wait for a read/write lock. Private to us, as [`undone`](Self::undone).
    pub(crate) fn writers<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_writers:", "distlock_writers:{")
    }

    /// Redisson's zset of the permits that are out.
    pub(crate) fn permit_timeouts<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.wrapped("", PERMIT_TIMEOUTS_SUFFIX)
        } else {
            lock.wrapped("{", "}:timeout")
        }
    }

    /// Who of ours waits for several permits at once. Private to us, as [`undone`](Self::undone).
    pub(crate) fn semaphore_queue<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_line:", "distlock_line:{")
    }

    /// Whose permits are out, by what their ids begin with. Private to us, as [`undone`](Self::undone).
    pub(crate) fn clients<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.private(name, "distlock_clients:", "distlock_clients:{")
    }

    /// In the lock's own slot, by the rule that servers go by; names that allow of no such key (`foo}bar`, `{}foo`) are
    /// none for a cluster.
    fn private<'a>(&'a self, name: &'a str, bare: &'static str, braced: &'static str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.is_tagged() {
            lock.wrapped(bare, "")
        } else {
            lock.wrapped(braced, "}")
        }
    }

    /// What the keys begin with that say what each client has done to a number that is nobody's; its uuid follows. Private
    /// to us, as [`undone`](Self::undone), and never those of another name: latches are not compared with the
    /// other name that [`twin`](Self::twin) is about, since Redisson's latch has no side keys.
    pub(crate) fn dedup<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.is_tagged() {
            lock.wrapped("distlock_done:", "::")
        } else {
            lock.wrapped("distlock_done:{", "}:")
        }
    }

    /// The key of the one other name that has the same side keys, if there is such a name: Redisson derives the same ones
    /// from `x` and from `{x}`. The keys private to distlock, but for [`done`](Self::done), are also the same for a name with a brace
    /// and without a hash tag, such as `a{b` and `{a{b}`. Where the other key is in another slot of a cluster, the server does not tell whether it exists.
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

    /// What is between the braces at both ends of a lock's key, if it has them.
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

    /// What the keys begin with that say how long each reader of a read/write lock is there.
    pub(crate) fn base<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock
        } else {
            lock.wrapped("{", "}")
        }
    }

    /// Where one listens.
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

    /// Where a client keeps its label. Not a lock's key, so it takes part in no lock's slot.
    pub(crate) fn label(&self, client: &str) -> String {
        format!("{}distlock_client:{client}", self.prefix)
    }

    /// Whether the prefix puts all locks into one slot of a cluster.
    pub(crate) fn has_one_slot(&self) -> bool {
        has_hash_tag(&self.prefix)
    }

    /// Since when a promoted server is known.
    pub(crate) fn promotion_record(&self) -> String {
        format!("{}distlock_promoted", self.prefix)
    }

    /// The same, where it has to be in a slot: one with this tag, unless the prefix has another, where all locks are.
    pub(crate) fn promotion_record_in(&self, tag: &str) -> String {
        if self.has_one_slot() {
            return self.promotion_record();
        }
        format!("{}distlock_promoted:{{{tag}}}", self.prefix)
    }

    /// The name of the semaphore whose permits that are out are in this key.
    pub(crate) fn name_of_permit_timeouts<'a>(&self, key: &'a str) -> Option<&'a str> {
        let key = key.strip_suffix(PERMIT_TIMEOUTS_SUFFIX)?;
        let braced = key.strip_prefix('{').and_then(|key| key.strip_suffix('}'));
        match braced.filter(|name| !name.contains('{')) {
            Some(key) => self.name(key),
            None if key.contains('{') => self.name(key),
            None => None,
        }
    }

    /// A glob of the server's that finds at least every lock whose name matches `pattern`. Its `?` is
    /// one byte and its brackets are special, so what it finds is to be matched again.
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

    /// Globs of the server's that find at least the channels of every lock whose name matches `pattern`: with braces
    /// around the key, the same for one waiter, and both without, then those of read/write locks with braces and without,
    /// in this order. Or two, one for each sort of lock, where these find all.
    pub(crate) fn channel_patterns(&self, pattern: &str) -> Vec<String> {
        let key = self.scan_pattern(pattern);
        let bare = format!("{CHANNEL}{key}");
        let shared = format!("{SHARED_CHANNEL}{key}");
        if key.starts_with('*') && key.ends_with('*') && !key.ends_with("\\*") {
            return vec![bare, shared];
        }
        let braced = format!("{CHANNEL}{{{key}}}");
        let waiters = |channel: &str| format!("{channel}:*");
        vec![
            braced.clone(),
            waiters(&braced),
            bare.clone(),
            waiters(&bare),
            format!("{SHARED_CHANNEL}{{{key}}}"),
            shared,
        ]
    }

    /// Globs of the server's that find the channels of all locks, as [`channel_patterns`](Self::channel_patterns) does.
    pub(crate) fn all_channel_patterns() -> Vec<String> {
        vec![format!("{CHANNEL}*"), format!("{SHARED_CHANNEL}*")]
    }

    /// The name of the lock that a message at this channel is about, if the prefix is ours; and which of the
    /// [`channel_patterns`](Self::channel_patterns) finds it for certain. A fair lock is announced to one waiter, whose id
    /// follows the lock's own channel. Of two locks with one channel (`a` and `{a}`) the first is meant.
    pub(crate) fn name_of_channel<'a>(&self, channel: &'a str) -> Option<(&'a str, usize)> {
        let (channel, braced, bare) = match channel.strip_prefix(SHARED_CHANNEL) {
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

    /// Whether one who waits for a fair lock is told there, and nobody else.
    pub(crate) fn is_waiter_channel(channel: &str) -> bool {
        let whole = channel.strip_prefix(CHANNEL);
        whole.is_some_and(|whole| without_owner(whole) != whole)
    }

    /// The names behind our prefix that match a pattern.
    pub(crate) fn names(&self, pattern: impl Into<String>) -> NameFilter {
        NameFilter::new(&self.prefix, pattern)
    }

    /// The name of the lock in this key, if the prefix is ours.
    pub(crate) fn name<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&*self.prefix)
    }
}

impl<'a> Key<'a> {
    /// Its text, piece by piece.
    pub(crate) const fn pieces(&self) -> &[&'a str] {
        &self.0
    }

    fn has_brace(&self) -> bool {
        self.0.iter().any(|piece| piece.contains('{'))
    }

    /// Whether a server takes a part of it for its hash tag.
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

/// A channel without the waiter it is for, if it is for one.
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

/// Whether a server takes a part of this key for its slot: something between the first brace and the
/// first one that closes after it.
fn has_hash_tag(key: &str) -> bool {
    let Some((_, suffix)) = key.split_once('{') else {
        return false;
    };
    suffix.find('}').is_some_and(|length| length > 0)
}

#[cfg(test)]
mod tests;
