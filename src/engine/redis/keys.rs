//! Redisson's names for keys and channels.

use std::sync::Arc;

use crate::protocol::Channel;

/// Turns lock names into keys and channels, and keys back into names.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
}

impl Keys {
    /// `prefix` goes before every lock's name, as a Redisson `NameMapper` would put it.
    pub(crate) const fn new(prefix: Arc<str>) -> Self {
        Self { prefix }
    }

    /// The hash a lock lives in.
    pub(crate) fn lock(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Where releases are announced.
    pub(crate) fn channel(&self, channel: &Channel) -> String {
        match channel {
            Channel::Lock(name) => in_slot("redisson_lock__channel", &self.lock(name)),
        }
    }

    /// The acquires that were taken back before they came. Private to us: Redisson never looks at it.
    /// In the lock's own slot, by the rule that servers go by; names that allow of no such key
    /// (`foo}bar`, `{}foo`) are none for a cluster.
    pub(crate) fn undone(&self, name: &str) -> String {
        let lock = self.lock(name);
        if has_hash_tag(&lock) {
            format!("distlock_undone:{lock}")
        } else {
            format!("distlock_undone:{{{lock}}}")
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

/// Redisson's brace rule: a name with a brace in it is taken to carry its own hash tag.
fn in_slot(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
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
            assert_eq!(keys.channel(&Channel::Lock(name.into())), channel);
        }
    }

    #[test]
    fn a_prefix_goes_before_the_name_everywhere() {
        let keys = Keys::new("test::".into());
        assert_eq!(keys.lock("a"), "test::a");
        let channel = Channel::Lock("a".into());
        assert_eq!(keys.channel(&channel), "redisson_lock__channel:{test::a}");
        assert_eq!(keys.name("test::a"), Some("a"));
        assert_eq!(keys.name("a"), None);
        assert_eq!(Keys::new("a*".into()).pattern("x*"), r"a\*x*");
    }
}
