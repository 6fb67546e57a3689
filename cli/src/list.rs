//! `ls` and `show`: the held locks and their holders.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use distlock::{ListProgress, LockInfo, LockKind, ReleaseOn};
use serde::Serialize;

use crate::args::{Locks, Show};
use crate::date::Date;
use crate::duration::short;
use crate::exit::{self, Failure};
use crate::kind;
use crate::label::HolderInfo;
use crate::out::{Out, say, shown};
use crate::store;
use crate::waiting::Shown;

pub(crate) async fn ls(args: Locks) -> Result<u8, Failure> {
    let client = store::connect(&args.store, ReleaseOn::Process).await?;
    let mut progress = Progress::new();
    let report = |seen: ListProgress| progress.report(seen.scanned);
    let locks = client.admin();
    let locks = locks.list_with_progress(&args.pattern, report).await?;
    drop(progress);
    store::leave(&client).await;
    let mut out = Out::new();
    if args.json {
        for lock in &locks {
            out.json(&LockOutput::new(lock))?;
        }
        return Ok(0);
    }
    if locks.is_empty() {
        return Ok(0);
    }
    let rows = table(&locks, Date::now());
    let style = out.style();
    for (number, row) in rows.iter().enumerate() {
        let text = if number == 0 {
            style.dim(row)
        } else {
            row.clone()
        };
        out.line(text)?;
    }
    Ok(0)
}

/// How long a listing may take before it shows its progress, and the time between two updates of that line.
const QUIET: Duration = Duration::from_millis(300);
const REFRESH: Duration = Duration::from_millis(100);

/// A line about the progress of a listing, on a terminal.
struct Progress {
    line: Option<Shown>,
    due: Instant,
}

impl Progress {
    fn new() -> Self {
        Self {
            line: std::io::stderr().is_terminal().then(Shown::new),
            due: Instant::now() + QUIET,
        }
    }

    fn report(&mut self, scanned: u64) {
        if let Some(line) = &mut self.line
            && Instant::now() >= self.due
        {
            line.show(&format!("scanned {scanned} keys"));
            self.due = Instant::now() + REFRESH;
        }
    }
}

pub(crate) async fn show(args: Show) -> Result<u8, Failure> {
    let client = store::connect(&args.store, ReleaseOn::Process).await?;
    let seen = client.admin().inspect(&args.name).await?;
    store::leave(&client).await;
    let mut out = Out::new();
    let Some(lock) = seen else {
        if args.json {
            out.json(&LockOutput::free(&args.name))?;
        } else {
            say(format!("`{}` is not held", shown(&args.name)));
        }
        return Ok(exit::NO);
    };
    if args.json {
        out.json(&LockOutput::new(&lock))?;
        return Ok(0);
    }
    let style = out.style();
    let sees_processes = store::sees_processes(&args.store);
    for (what, text) in details(&lock, sees_processes, Date::now()) {
        out.line(format!("{} {text}", style.dim(&format!("{what:<9}"))))?;
    }
    Ok(0)
}

/// The JSON form of a lock.
#[derive(Serialize)]
struct LockOutput<'a> {
    name: &'a str,
    /// `None` for a name that is free.
    kind: Option<&'static str>,
    holders: Vec<Holder<'a>>,
    /// The time until the lock expires if it is not renewed; `None` if it does not expire.
    ttl_ms: Option<u64>,
    /// The token of the last grant of a fenced lock.
    token: Option<u64>,
    /// The number of permits of a semaphore.
    permits: Option<Permits>,
    /// The first owners that wait: for a fair lock in the order of its queue, for a read/write lock the writers.
    waiting: &'a [String],
}

#[derive(Serialize)]
struct Permits {
    available: i64,
    out: u64,
}

#[derive(Serialize)]
struct Holder<'a> {
    owner: &'a str,
    hold_count: u64,
    /// The time until the hold expires if it is not renewed; `None` if it does not expire.
    ttl_ms: Option<u64>,
    label: Option<&'a str>,
    since: Option<String>,
}

impl<'a> LockOutput<'a> {
    const fn free(name: &'a str) -> Self {
        Self {
            name,
            kind: None,
            holders: Vec::new(),
            ttl_ms: None,
            token: None,
            permits: None,
            waiting: &[],
        }
    }

    fn new(lock: &'a LockInfo) -> Self {
        let millis = |ttl: std::time::Duration| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let holder = |holder: &'a distlock::Holder| Holder {
            owner: &holder.owner,
            hold_count: holder.hold_count,
            ttl_ms: holder.ttl.map(millis),
            label: holder.label.as_deref(),
            since: HolderInfo::of(holder).since.map(|since| since.to_string()),
        };
        Self {
            name: &lock.name,
            kind: Some(kind::word(lock.kind)),
            holders: lock.holders.iter().map(holder).collect(),
            ttl_ms: lock.ttl.map(millis),
            token: lock.token.map(u64::from),
            permits: lock.permits.map(|permits| Permits {
                available: permits.available,
                out: permits.out,
            }),
            waiting: &lock.waiting,
        }
    }
}

/// Returns the rows of a table: a heading, and a row for each holder of each lock.
fn table(locks: &[LockInfo], now: Date) -> Vec<String> {
    let heading = ["NAME", "KIND", "HELD FOR", "LEASE LEFT", "HOLDER"];
    let mut rows = vec![heading.map(str::to_owned)];
    for lock in locks {
        for holder in &lock.holders {
            let who = HolderInfo::of(holder);
            let held = who.since.map(|since| short(now.since(since)));
            rows.push([
                shown(&lock.name),
                kind::word(lock.kind).to_owned(),
                held.unwrap_or_else(|| "-".to_owned()),
                holder.ttl.map_or_else(|| endless(lock).to_owned(), short),
                who.to_string(),
            ]);
        }
    }
    aligned(&rows)
}

fn aligned(rows: &[[String; 5]]) -> Vec<String> {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |row: &[String; 5]| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        // The last column needs no padding.
        line + &row[4]
    };
    rows.iter().map(line).collect()
}

fn details(lock: &LockInfo, sees_processes: bool, now: Date) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("name", shown(&lock.name)),
        ("kind", kind::word(lock.kind).to_owned()),
    ];
    lines.extend(lock.token.map(|token| ("token", token.to_string())));
    lines.extend(lock.permits.map(|permits| {
        let text = format!("{} in use, {} available", permits.out, permits.available);
        ("permits", text)
    }));
    for holder in &lock.holders {
        let who = HolderInfo::of(holder);
        // A hold without a lease means that the store sees a process at work: if the holder has ended, then one that it
        // has started.
        let left_behind = sees_processes && holder.ttl.is_none() && who.has_ended();
        let remark = if left_behind {
            " (ended; a process that it started still holds the lock)"
        } else {
            ""
        };
        lines.push(("held by", format!("{}{remark}", who.name)));
        lines.extend(who.command.clone().map(|command| ("command", command)));
        lines.extend(who.since.map(|since| {
            let text = format!("{since} ({} ago)", short(now.since(since)));
            ("since", text)
        }));
        lines.push(("owner", shown(&holder.owner)));
        if holder.hold_count != 1 {
            lines.push(("count", holder.hold_count.to_string()));
        }
        let left = holder.ttl.map_or_else(
            || endless(lock).to_owned(),
            |ttl| {
                let unless = if who.fixed { "" } else { " unless renewed" };
                format!("ends in {}{unless}", short(ttl))
            },
        );
        lines.push(("lease", left));
    }
    if let Some(first) = lock.waiting.first() {
        let count = lock.waiting.len();
        let first = shown(first);
        let text = match lock.kind {
            LockKind::Fair => format!("{count} in the queue, {first} first"),
            LockKind::Semaphore => format!("{count} for several permits, {first} first"),
            _ => format!("{count} to write, {first} among them"),
        };
        lines.push(("waiting", text));
    }
    lines
}

/// Describes the end of a hold without a lease. A labelled holder is a client of this library, and the store detects
/// its end.
pub(crate) fn endless(lock: &LockInfo) -> &'static str {
    let labelled = lock.holders.iter().any(|holder| holder.label.is_some());
    if labelled {
        "while it runs"
    } else {
        "no expiry"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 5]| cells.map(str::to_owned);
        let rows = [
            row(["NAME", "B", "C", "D", "E"]),
            row(["ä", "long", "c", "d", "the end"]),
        ];
        assert_eq!(
            aligned(&rows),
            ["NAME  B     C  D  E", "ä     long  c  d  the end"]
        );
    }
}
