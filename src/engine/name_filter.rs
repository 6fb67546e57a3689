//! A filter for the keys of a store: a prefix and a pattern for the name behind it.

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

    /// Returns the name in a key, if it matches.
    pub(super) fn name_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        let name = key.strip_prefix(&*self.prefix)?;
        self.matches(name).then_some(name)
    }

    /// Reports whether a name without its prefix matches.
    pub(super) fn matches(&self, name: &str) -> bool {
        glob::matches(&self.pattern, name)
    }
}
