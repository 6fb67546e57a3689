//! Everything that is printed: answers to standard output, the rest to standard error.

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

    /// Whether we were started without one. The standard library then puts the null device in its place, to be read
    /// and written; somebody's own `> /dev/null` is only written.
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

/// A message, on standard error, on one line whatever is in it. If that is gone as well, there is nobody left to tell.
pub(crate) fn say(message: impl Display) {
    offer(&message_line(message), PATIENCE);
}

/// The same without waiting for a reader that stands still; reports whether it was written.
pub(crate) fn say_at_once(message: impl Display) -> bool {
    offer(&message_line(message), Duration::ZERO)
}

fn message_line(message: impl Display) -> String {
    let message = harmless(message.to_string().chars());
    format!("distlock: {message}\n")
}

/// Writes to standard error what is taken within that time, and drops what is not: a reader that stands still must
/// not keep us from our locks, nor from our end. Reports whether it was written.
pub(crate) fn offer(text: &str, patience: Duration) -> bool {
    let mut stderr = std::io::stderr();
    let room = has_room(&stderr, patience);
    if room {
        let text = text.as_bytes();
        let _ = stderr.write_all(&text[..text.len().min(AT_ONCE)]);
    }
    room
}

fn has_room(stderr: &std::io::Stderr, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        let mut room = [PollFd::new(stderr, PollFlags::OUT)];
        match poll(&mut room, Some(&left)) {
            // By a signal, which is heard elsewhere.
            Err(Errno::INTR) => {}
            // What cannot be asked, or has gone, answers the write.
            Err(_) | Ok(1..) => return true,
            Ok(0) => return false,
        }
    }
}

/// What a pipe with room takes without waiting, in bytes; more than any message has.
const AT_ONCE: usize = 4096;
/// How long somebody who reads has for what they have not read yet.
const PATIENCE: Duration = Duration::from_secs(1);

/// A name or label as it may be shown: on one line, not too much of it, and no orders to the terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let mut shown = harmless(chars.by_ref().take(LONGEST_SHOWN));
    if !chars.as_str().is_empty() {
        shown.push('…');
    }
    shown
}

/// Text of others as a part of ours: on one line, and no orders to the terminal.
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

/// Whether it changes the direction in which the rest of a line is read.
const fn turns_around(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// In characters.
const LONGEST_SHOWN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_the_terminal_no_orders() {
        assert_eq!(shown("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(shown("bücher ✉"), "bücher ✉");
        assert_eq!(shown("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(shown(&"x".repeat(70_000)).chars().count(), 201);
    }
}
