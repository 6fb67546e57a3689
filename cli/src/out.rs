//! The output: results to standard output, everything else to standard error.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use serde::Serialize;

use crate::exit::{self, Failure};
use crate::style::Style;

/// Standard output. A reader that closes it early ends the command, silently and with success: it has the part that it
/// wanted (`distlock ls | head -1`).
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

    /// Returns whether this process was started without standard output. The standard library then opens the null
    /// device in its place for reading and writing; a user's own `> /dev/null` is only open for writing.
    pub(crate) fn is_closed() -> bool {
        let stdout = std::io::stdout();
        let read_too = fcntl_getfl(&stdout).is_ok_and(|flags| flags.contains(OFlags::RDWR));
        let null = std::fs::metadata("/dev/null").map(|null| null.rdev());
        let device = fstat(&stdout).map(|stdout| stdout.st_rdev);
        read_too && matches!((null, device), (Ok(null), Ok(device)) if null == device)
    }

    pub(crate) const fn style(&self) -> Style {
        self.style
    }

    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), Failure> {
        self.write(format!("{text}\n").as_bytes())
    }

    /// Writes one object, on one line.
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

    /// Returns whether the reader has closed the output, for commands that may write nothing for a long time.
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

/// Writes a message to standard error, always on one line. If that is closed as well, the message is dropped.
pub(crate) fn say(message: impl Display) {
    offer(&message_line(message), PATIENCE);
}

/// Does the same without waiting for a blocked reader; reports whether it was written.
pub(crate) fn say_at_once(message: impl Display) -> bool {
    offer(&message_line(message), Duration::ZERO)
}

fn message_line(message: impl Display) -> String {
    let message = harmless(message.to_string().chars());
    format!("distlock: {message}\n")
}

/// Writes to standard error the text that is accepted within `patience`, and drops the rest: a blocked reader must
/// delay neither the locks nor the end of this process. Reports whether it was written.
pub(crate) fn offer(text: &str, patience: Duration) -> bool {
    let mut stderr = std::io::stderr();
    let can_write = is_writable(&stderr, patience);
    if can_write {
        let text = text.as_bytes();
        let _ = stderr.write_all(&text[..text.len().min(AT_ONCE)]);
    }
    can_write
}

fn is_writable(stderr: &std::io::Stderr, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        let mut poll_fds = [PollFd::new(stderr, PollFlags::OUT)];
        match poll(&mut poll_fds, Some(&left)) {
            // The signal is handled elsewhere.
            Err(Errno::INTR) => {}
            // If polling fails, or the stream is closed, the write reports it.
            Err(_) | Ok(1..) => return true,
            Ok(0) => return false,
        }
    }
}

/// The size that a pipe with room accepts without blocking, in bytes; more than any message has.
const AT_ONCE: usize = 4096;
/// How long a message waits for a reader that has not yet read the earlier output.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns a name or label for display: on one line, truncated, and without terminal control sequences.
pub(crate) fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let mut shown = harmless(chars.by_ref().take(LONGEST_SHOWN));
    if !chars.as_str().is_empty() {
        shown.push('…');
    }
    shown
}

/// Returns foreign text for use in a message: on one line, and without terminal control sequences.
pub(crate) fn harmless(text: impl Iterator<Item = char>) -> String {
    let mut harmless = String::new();
    for c in text {
        if c.is_control() || turns_around(c) {
            harmless.extend(c.escape_default());
        } else {
            harmless.push(c);
        }
    }
    harmless
}

/// Returns whether the character changes the writing direction of the rest of a line.
const fn turns_around(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Upper bound in characters.
const LONGEST_SHOWN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_a_name_are_escaped() {
        assert_eq!(shown("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(shown("bücher ✉"), "bücher ✉");
        assert_eq!(shown("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(shown(&"x".repeat(70_000)).chars().count(), 201);
    }
}
