//! The line that a waiter shows on its terminal: the holder, the time it has held the lock, and when its lease expires
//! at the latest.

use std::io::IsTerminal;
use std::time::Duration;

use distlock::{Client, LockInfo};

use crate::date::Date;
use crate::duration::short;
use crate::label::HolderInfo;
use crate::list::endless;
use crate::out::{offer, shown};
use crate::style::{Style, is_capable};
use crate::take::first_held;

/// Shorter waits show no line.
const PATIENCE: Duration = Duration::from_millis(300);
const REFRESH: Duration = Duration::from_secs(1);

/// Default width, for terminals that do not report theirs.
const USUAL_WIDTH: usize = 80;

/// Clears the line and moves the cursor to its start.
const CLEAR: &str = "\r\u{1b}[2K";

/// Shows the line for as long as the future is polled, if standard error is a terminal.
pub(crate) async fn show_holder(client: &Client, names: &[String]) {
    let stderr = std::io::stderr();
    if !stderr.is_terminal() {
        return std::future::pending().await;
    }
    tokio::time::sleep(PATIENCE).await;
    let mut shown = Shown::new();
    loop {
        // The holder is unknown for another library's lock; if the request failed, it may be known in a second.
        let (name, seen) = first_held(client, names).await;
        shown.show(&line(name, seen.as_ref(), Date::now()));
        tokio::time::sleep(REFRESH).await;
    }
}

/// The line on the terminal, which is cleared when this value is dropped.
pub(crate) struct Shown {
    /// Whether the line can be overwritten; otherwise it is written once.
    capable: bool,
    written: bool,
}

impl Shown {
    pub(crate) fn new() -> Self {
        Self {
            capable: is_capable(std::env::var_os("TERM").as_deref()),
            written: false,
        }
    }

    pub(crate) fn show(&mut self, text: &str) {
        if self.capable {
            let text = cut(text, width());
            let text = Style::on(true).dim(&text);
            at_once(&format!("{CLEAR}{text}"));
        } else if !self.written {
            at_once(&format!("{text}\n"));
        }
        self.written = true;
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.capable && self.written {
            at_once(CLEAR);
        }
    }
}

/// Writes without waiting: if the terminal is stopped (Ctrl-S), the text is not needed.
fn at_once(text: &str) {
    offer(text, Duration::ZERO);
}

fn line(name: &str, seen: Option<&LockInfo>, now: Date) -> String {
    let name = shown(name);
    let holder = seen.and_then(|lock| Some((lock, lock.holders.first()?)));
    let Some((lock, holder)) = holder else {
        return format!("waiting for `{name}`");
    };
    let who = HolderInfo::of(holder);
    let since = who.since.map_or_else(String::new, |since| {
        format!(" for {}", short(now.since(since)))
    });
    let left = holder.ttl.map_or_else(
        || format!(", {}", endless(lock)),
        |ttl| format!(", lease ends in {}", short(ttl)),
    );
    let command = who
        .command
        .map_or_else(String::new, |command| format!(": {command}"));
    format!(
        "waiting for `{name}`, held by {}{since}{left}{command}",
        who.name
    )
}

/// Truncates the line: a wrapped line could not be cleared.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() < width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(2)).collect();
    cut.push('…');
    cut
}

fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { USUAL_WIDTH } else { columns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_fits_the_terminal() {
        assert_eq!(cut("short", 80), "short");
        assert_eq!(cut("0123456789", 10).chars().count(), 9);
        assert_eq!(cut("0123456789", 0), "…");
    }

    #[test]
    fn the_status_line_names_the_lock_without_a_holder() {
        assert_eq!(line("a\nb", None, Date::now()), "waiting for `a\\nb`");
    }
}
