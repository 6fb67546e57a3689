//! Colours, for output on a terminal.

use std::ffi::OsStr;

/// Whether to use colours: only on terminals that support them, and never if NO_COLOR is set (<https://no-color.org>).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Style {
    colours: bool,
}

impl Style {
    pub(crate) fn on(terminal: bool) -> Self {
        let colours = terminal
            && are_wanted(
                std::env::var_os("NO_COLOR").as_deref(),
                std::env::var_os("TERM").as_deref(),
            );
        Self { colours }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

fn are_wanted(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && is_capable(term)
}

/// Returns whether a terminal of this kind supports more than plain text.
pub(crate) fn is_capable(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_used_on_terminals_that_accept_them() {
        let xterm = Some(OsStr::new("xterm"));
        assert!(are_wanted(None, xterm));
        assert!(are_wanted(Some(OsStr::new("")), xterm));
        assert!(!are_wanted(Some(OsStr::new("1")), xterm));
        assert!(!are_wanted(None, Some(OsStr::new("dumb"))));
        assert!(!are_wanted(None, None));
    }
}
