//! Formatting of error messages.

use std::sync::Arc;

use super::Error;

/// A name in a message: on one line, and truncated.
pub(super) struct TruncatedName<'a>(pub(super) &'a str);

impl std::fmt::Display for TruncatedName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut chars = self.0.chars();
        for c in chars.by_ref().take(LONGEST_SHOWN) {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        f.write_str(if chars.as_str().is_empty() { "" } else { "…" })
    }
}

/// The prefix of a message that names its subject, if it has one.
pub(super) struct NamePrefix<'a>(pub(super) Option<&'a Arc<str>>);

impl std::fmt::Display for NamePrefix<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.filter(|name| !name.is_empty()) {
            Some(name) => write!(f, "`{}`: ", TruncatedName(name)),
            None => Ok(()),
        }
    }
}

/// Several messages, joined.
pub(super) struct JoinedErrors<'a>(pub(super) &'a [Error]);

impl std::fmt::Display for JoinedErrors<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, error) in self.0.iter().enumerate() {
            let before = if place == 0 { "" } else { "; " };
            write!(f, "{before}{error}")?;
        }
        Ok(())
    }
}

pub(super) const fn why_closed(forked: bool) -> &'static str {
    if forked {
        "the client belongs to the process that this one was forked from; create a new client"
    } else {
        "the client is closed; create a new client"
    }
}

/// Turns a server's message about data that is no lock into plainer words, without its error code.
pub(super) fn without_code(detail: String) -> String {
    match detail.strip_prefix("WRONGTYPE ") {
        // The server does not say which key.
        Some("Operation against a key holding the wrong kind of value") => {
            "its key, or a related key, holds data of another type or format".to_owned()
        }
        Some(rest) => rest.to_owned(),
        None => detail,
    }
}

/// Upper bound in characters: more than any sensible name or url has.
const LONGEST_SHOWN: usize = 200;
