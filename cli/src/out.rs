//! Everything that is printed: answers to standard output, the rest to standard error.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::exit::{self, Failure};
use crate::style::Style;

/// Standard output. Whoever stops reading it ends the command, quietly and with success: they have what
/// they wanted (`distlock ls | head -1`).
pub(crate) struct Out {
    stdout: std::io::Stdout,
    style: Style,
}

impl Out {
    pub(crate) fn new() -> Self {
        let stdout = std::io::stdout();
        Self {
            style: Style::on(stdout.is_terminal()),
            stdout,
        }
    }

    pub(crate) const fn style(&self) -> Style {
        self.style
    }

    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), Failure> {
        self.write(format!("{text}\n").as_bytes())
    }

    /// One object, on one line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|error| Failure::new(exit::OUTPUT, error.to_string()))?;
        self.line(text)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.stdout.write_all(bytes);
        written.and_then(|()| self.stdout.flush()).map_err(|error| {
            if error.kind() == ErrorKind::BrokenPipe {
                return Failure::silent(0);
            }
            Failure::new(exit::OUTPUT, format!("cannot write the output: {error}"))
        })
    }

    /// Whether nobody reads it any more, for commands that may have nothing to say for a long time.
    pub(crate) fn is_abandoned(&self) -> bool {
        let mut pipe = [PollFd::new(&self.stdout, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ended = poll(&mut pipe, Some(&now));
        ended.is_ok()
            && pipe[0]
                .revents()
                .intersects(PollFlags::ERR | PollFlags::HUP)
    }
}

/// A message, on standard error. If that is gone as well, there is nobody left to tell.
pub(crate) fn say(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "distlock: {message}");
}

/// A name or label as it may be shown: on one line, and no orders to the terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_the_terminal_no_orders() {
        assert_eq!(shown("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(shown("bücher ✉"), "bücher ✉");
    }
}
