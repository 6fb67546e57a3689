//! Redisson's names for keys and channels.

use std::fmt;
use std::sync::Arc;

use crate::engine::names::Names;
use crate::protocol::{Channel, ClientId};

/// What the channels of all locks begin with.
const CHANNEL: &str = "redisson_lock__channel:";
const SHARED_CHANNEL: &str = "redisson_rwlock:";

/// Turns lock names into keys and channels, and keys back into names.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
}

/// A key or channel, not yet put together: most are only ever written to a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a>([&'a str; 4]);

impl Keys {
    /// `prefix` goes before every lock's name, as a Redisson `NameMapper` would put it.
    pub(crate) const fn new(prefix: Arc<str>) -> Self {
        Self { prefix }
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
                    lock.between(SHARED_CHANNEL, "")
                } else {
                    lock.between("redisson_rwlock:{", "}")
                }
            }
            Channel::Lock(name) | Channel::Waiter(name, _) => {
                let lock = self.lock(name);
                // Redisson's brace rule: a name with a brace in it is taken to carry its own hash tag.
                if lock.has_brace() {
                    lock.between(CHANNEL, "")
                } else {
                    lock.between("redisson_lock__channel:{", "}")
                }
            }
        }
    }

    /// The acquires that were taken back before they came. Private to us: Redisson never looks at it.
    /// In the lock's own slot, by the rule that servers go by; names that allow of no such key
    /// (`foo}bar`, `{}foo`) are none for a cluster.
    pub(crate) fn undone<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() && has_hash_tag(&lock.to_string()) {
            lock.between("distlock_undone:", "")
        } else {
            lock.between("distlock_undone:{", "}")
        }
    }

    /// Where a fenced lock's last token is, for ever: Redisson's counter.
    pub(crate) fn token<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.between("redisson_lock_token:", "")
        } else {
            lock.between("redisson_lock_token:{", "}")
        }
    }

    /// Redisson's list of those who wait for a fair lock.
    pub(crate) fn queue<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.between("redisson_lock_queue:", "")
        } else {
            lock.between("redisson_lock_queue:{", "}")
        }
    }

    /// Redisson's zset of when each of them may be passed over.
    pub(crate) fn timeout<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock.between("redisson_lock_timeout:", "")
        } else {
            lock.between("redisson_lock_timeout:{", "}")
        }
    }

    /// Until when those of ours are there. Private to us, as [`undone`](Self::undone).
    pub(crate) fn alive<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() && has_hash_tag(&lock.to_string()) {
            lock.between("distlock_alive:", "")
        } else {
            lock.between("distlock_alive:{", "}")
        }
    }

    /// The writers of ours that wait for a read/write lock. Private to us, as [`undone`](Self::undone).
    pub(crate) fn writers<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() && has_hash_tag(&lock.to_string()) {
            lock.between("distlock_writers:", "")
        } else {
            lock.between("distlock_writers:{", "}")
        }
    }

    /// What the keys begin with that say how long each reader of a read/write lock is there.
    pub(crate) fn base<'a>(&'a self, name: &'a str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() {
            lock
        } else {
            lock.between("{", "}")
        }
    }

    /// Where one listens.
    pub(crate) fn channel_text(&self, channel: &Channel) -> String {
        match channel {
            Channel::Lock(_) | Channel::ReadWrite(_) => self.channel(channel).to_string(),
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

    /// A glob of the server's that finds at least every lock whose name matches `pattern`. Its `?` is
    /// one byte and its brackets are special, so what it finds is to be matched again.
    pub(crate) fn pattern(&self, pattern: &str) -> String {
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
        let key = self.pattern(pattern);
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
    pub(crate) fn every_channel() -> Vec<String> {
        vec![format!("{CHANNEL}*"), format!("{SHARED_CHANNEL}*")]
    }

    /// The name of the lock that a message at this channel is about, if the prefix is ours; and which of the
    /// [`channel_patterns`](Self::channel_patterns) finds it for certain. A fair lock is announced to one waiter, whose id
    /// follows the lock's own channel. Of two locks with one channel (`a` and `{a}`) the first is meant.
    pub(crate) fn name_in<'a>(&self, channel: &'a str) -> Option<(&'a str, usize)> {
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
    pub(crate) fn is_waiters(channel: &str) -> bool {
        let whole = channel.strip_prefix(CHANNEL);
        whole.is_some_and(|whole| without_owner(whole) != whole)
    }

    /// The names behind our prefix that match a pattern.
    pub(crate) fn names(&self, pattern: impl Into<String>) -> Names {
        Names::new(&self.prefix, pattern)
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

    const fn between(self, before: &'static str, behind: &'static str) -> Self {
        let [_, prefix, name, _] = self.0;
        Key([before, prefix, name, behind])
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
    let Some((_, behind)) = key.split_once('{') else {
        return false;
    };
    behind.find('}').is_some_and(|length| length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_follow_redissons_brace_rule() {
        let keys = Keys::new("".into());
        for (name, channel) in [
            ("order", "redisson_lock__channel:{order}"),
            ("a{b}c", "redisson_lock__channel:a{b}c"),
            ("foo{bar", "redisson_lock__channel:foo{bar"),
            ("{}foo", "redisson_lock__channel:{}foo"),
            ("foo}bar", "redisson_lock__channel:{foo}bar}"),
        ] {
            let of = Channel::Lock(name.into());
            assert_eq!(keys.channel(&of).to_string(), channel);
        }
    }

    #[test]
    fn channels_are_found_by_pattern_and_lead_back_to_the_name() {
        let keys = Keys::new("app*/".into());
        let all = [
            r"redisson_lock__channel:{app\*/a*}",
            r"redisson_lock__channel:{app\*/a*}:*",
            r"redisson_lock__channel:app\*/a*",
            r"redisson_lock__channel:app\*/a*:*",
            r"redisson_rwlock:{app\*/a*}",
            r"redisson_rwlock:app\*/a*",
        ];
        assert_eq!(keys.channel_patterns("a*"), all);
        let keys = Keys::new("".into());
        assert_eq!(keys.channel_patterns("*"), Keys::every_channel());
        assert_eq!(keys.channel_patterns(r"*\*").len(), 6);
        let waiter = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1";
        for (channel, name, pattern) in [
            ("{order}", "order", 0),
            ("a{b}c", "a{b}c", 2),
            ("foo{bar", "foo{bar", 2),
            ("{}foo", "{}foo", 2),
            ("{foo}bar}", "foo}bar", 0),
            (&*format!("{{order}}:{waiter}"), "order", 1),
            (&*format!("a{{b}}c:{waiter}"), "a{b}c", 3),
            ("{a}:b:1", "{a}:b:1", 2),
        ] {
            let channel = format!("redisson_lock__channel:{channel}");
            assert_eq!(keys.name_in(&channel), Some((name, pattern)), "{channel}");
            assert_eq!(Keys::is_waiters(&channel), [1, 3].contains(&pattern));
        }
        for (channel, found) in [("{a}", ("a", 4)), ("a{b}c", ("a{b}c", 5))] {
            let channel = format!("redisson_rwlock:{channel}");
            assert_eq!(keys.name_in(&channel), Some(found));
        }
        for channel in ["redisson_lock__channel:order", "order"] {
            assert_eq!(keys.name_in(channel), None);
        }
        let keys = Keys::new("app/".into());
        let channel = "redisson_lock__channel:{app/a}";
        assert_eq!(keys.name_in(channel), Some(("a", 0)));
        assert_eq!(keys.name_in("redisson_lock__channel:{a}"), None);
    }

    #[test]
    fn a_prefix_goes_before_the_name_everywhere() {
        let keys = Keys::new("test::".into());
        assert_eq!(keys.lock("a").to_string(), "test::a");
        let channel = Channel::Lock("a".into());
        let channel = keys.channel(&channel).to_string();
        assert_eq!(channel, "redisson_lock__channel:{test::a}");
        assert_eq!(keys.name("test::a"), Some("a"));
        assert_eq!(keys.name("a"), None);
        assert_eq!(Keys::new("a*".into()).pattern("x*"), r"a\*x*");
    }
}
