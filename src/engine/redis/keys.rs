//! Redisson's names for keys and channels.

use std::fmt;
use std::sync::Arc;

use crate::protocol::Channel;

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

    /// Where releases are announced.
    pub(crate) fn channel<'a>(&'a self, channel: &'a Channel) -> Key<'a> {
        match channel {
            Channel::Lock(name) => {
                let lock = self.lock(name);
                // Redisson's brace rule: a name with a brace in it is taken to carry its own hash tag.
                if lock.has_brace() {
                    lock.between("redisson_lock__channel:", "")
                } else {
                    lock.between("redisson_lock__channel:{", "}")
                }
            }
            // Ours alone: other libraries with such locks tell nobody.
            Channel::Simple(name) => self.tagged(name, "distlock_simple:", "distlock_simple:{"),
        }
    }

    /// The acquires that were taken back before they came. Private to us: Redisson never looks at it.
    /// Names that allow of no such key in their slot (`foo}bar`, `{}foo`) are none for a cluster.
    pub(crate) fn undone<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.tagged(name, "distlock_undone:", "distlock_undone:{")
    }

    /// In the lock's own slot, by the rule that servers go by: behind the one if the name has a hash tag, in braces
    /// behind the other if it has not.
    fn tagged<'a>(&'a self, name: &'a str, plain: &'static str, open: &'static str) -> Key<'a> {
        let lock = self.lock(name);
        if lock.has_brace() && has_hash_tag(&lock.to_string()) {
            lock.between(plain, "")
        } else {
            lock.between(open, "}")
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
