//! How what a message is about stands in it.

use std::sync::Arc;

use super::Error;

/// A name in a message: on one line, and not much of it.
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

/// What a message is about, in front of it, if it is about anything.
pub(super) struct NamePrefix<'a>(pub(super) Option<&'a Arc<str>>);

impl std::fmt::Display for NamePrefix<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.filter(|name| !name.is_empty()) {
            Some(name) => write!(f, "`{}`: ", TruncatedName(name)),
            None => Ok(()),
        }
    }
}

/// One message behind the other.
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
        "the client belongs to the process this one was forked from; make a new one"
    } else {
        "the client is closed; make a new one"
    }
}

/// What a server says of data that is no lock, without its error code and in other words than a programmer's.
pub(super) fn without_code(detail: String) -> String {
    match detail.strip_prefix("WRONGTYPE ") {
        // It does not say which key.
        Some("Operation against a key holding the wrong kind of value") => {
            "its key, or one beside it, has data of another type or form".to_owned()
        }
        Some(rest) => rest.to_owned(),
        None => detail,
    }
}

/// In characters: more than any sensible name or address has.
const LONGEST_SHOWN: usize = 200;
