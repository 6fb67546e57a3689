//! Which keys of a store are names that somebody asked for.

use std::sync::Arc;

use super::glob;

/// The names behind a prefix that match a glob pattern.
#[derive(Clone, Debug)]
pub(super) struct NameFilter {
    prefix: Arc<str>,
    pattern: String,
}

impl NameFilter {
    pub(super) fn new(prefix: &Arc<str>, pattern: impl Into<String>) -> Self {
        Self {
            prefix: prefix.clone(),
            pattern: pattern.into(),
        }
    }

    /// The name in a key, if it is one of these.
    pub(super) fn name_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        let name = key.strip_prefix(&*self.prefix)?;
        self.matches(name).then_some(name)
    }

    /// Whether a name without its prefix is one of these.
    pub(super) fn matches(&self, name: &str) -> bool {
        glob::matches(&self.pattern, name)
    }
}
