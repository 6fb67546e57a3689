//! The tables of a run, as Markdown.

use std::fmt::Write as _;

use crate::book::{Book, FigureKey, figure};
use crate::machine::Machine;
use crate::roster::{self, Contestant};
use crate::scenario;
use crate::summary;
use crate::targets;

/// Returns the report of everything that was measured.
pub(crate) fn markdown(book: &Book) -> String {
    format!("{}\n{}", in_short(book), figures(book))
}

/// Returns the winners, and where and when it was measured.
pub(crate) fn in_short(book: &Book) -> String {
    let Machine {
        date,
        commit,
        system,
        processor,
        cores,
        redis,
    } = &book.machine;
    let commit = commit.as_ref().map(|commit| format!(", commit {commit}"));
    format!(
        "{}\nEach number on the right is a median of the ratios in each repetition, not the ratio of the medians. Measured \
         {date}{}, on {processor}, {cores} cores for clients and server together, \
         {system}, redis {redis}, loopback.\n",
        summary::table(book),
        commit.unwrap_or_default()
    )
}

/// Returns every table, and the targets.
pub(crate) fn figures(book: &Book) -> String {
    let mut text = String::new();
    for scenario in scenario::ALL {
        for cell in book.cells(scenario.name) {
            let _ = write!(
                text,
                "### {}, {cell}: {}\n\n",
                scenario.name, scenario.shows
            );
            text += &table(book, (scenario.name, &cell));
            text.push('\n');
        }
    }
    let _ = write!(text, "### Targets\n\n{}", targets::list(book));
    text += "\n### Versions\n";
    for (name, version) in &book.versions {
        let _ = write!(text, "\n- {name}: {version}");
    }
    text.push('\n');
    text
}

/// A column: its head, its figure, the number of digits.
struct Column(&'static str, &'static str, usize);

const COLUMNS: &[Column] = &[
    Column("cycles/s", figure::RATE, 0),
    Column("hand-offs/s", figure::HANDOFFS, 0),
    Column("p50 µs", figure::P50, 0),
    Column("p99 µs", figure::P99, 0),
    Column("p99.9 µs", figure::P999, 0),
    Column("n", figure::COUNT, 0),
    Column("commands a cycle", figure::COMMANDS, 2),
    Column("server reads a cycle", figure::READS, 2),
    Column("client CPU s/100k", figure::CLIENT_CPU, 2),
    Column("server CPU s/100k", figure::SERVER_CPU, 2),
    Column("least process", figure::LEAST_SHARE, 2),
    Column("least ÷ most caller", figure::EVENNESS, 2),
    Column("scripts", figure::SCRIPTS, 2),
    Column("client cores", figure::CLIENT_LOAD, 3),
    Column("server cores", figure::SERVER_LOAD, 3),
    Column("bytes each", figure::MEMORY, 0),
    Column("lost", figure::LOST, 0),
    Column("subscriptions", figure::SUBSCRIPTIONS, 0),
];

fn table(book: &Book, at: FigureKey<'_>) -> String {
    let ours = roster::ALL.iter().filter(|one| one.is_ours());
    let others = roster::ALL.iter().filter(|one| !one.is_ours());
    let rows: Vec<&Contestant> = ours
        .chain(others)
        .filter(|one| {
            book.excuse(at, one.name).is_some()
                || COLUMNS
                    .iter()
                    .any(|Column(_, figure, _)| book.median(at, one.name, figure).is_some())
        })
        .collect();
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|Column(_, figure, _)| {
            rows.iter()
                .any(|one| book.median(at, one.name, figure).is_some())
        })
        .collect();
    let mut text = String::from("| |");
    for Column(head, figure, _) in &columns {
        let _ = match (*figure, at.0) {
            (figure::SCRIPTS, "W") => write!(text, " {head} a second |"),
            (figure::SCRIPTS, "H") => write!(text, " {head} a grant |"),
            (figure::SCRIPTS, _) => write!(text, " {head} a hand-off |"),
            _ => write!(text, " {head} |"),
        };
    }
    text += "\n|---|";
    text += &"--:|".repeat(columns.len());
    for one in rows {
        let _ = write!(text, "\n| {} |", one.title);
        if let Some(why) = book.excuse(at, one.name) {
            let _ = write!(
                text,
                " {why} |{}",
                " |".repeat(columns.len().saturating_sub(1))
            );
            continue;
        }
        for Column(_, figure, digits) in &columns {
            let _ = write!(text, " {} |", cell(book, at, one.name, figure, *digits));
        }
    }
    text.push('\n');
    text
}

/// Returns the median; for figures that are compared, with the smallest and greatest value.
fn cell(book: &Book, at: FigureKey<'_>, contestant: &str, name: &str, digits: usize) -> String {
    let Some(spread) = book.spread(at, contestant, name) else {
        return String::new();
    };
    // Less than ten microseconds need more digits.
    let close = name.ends_with("_us") && spread.median < 10.0;
    let digits = if close { 2 } else { digits };
    let median = grouped(spread.median, digits);
    let shown = [figure::RATE, figure::HANDOFFS, figure::P50, figure::P99].contains(&name);
    if !shown || (spread.most - spread.least).abs() < f64::EPSILON {
        return median;
    }
    let (least, most) = (grouped(spread.least, digits), grouped(spread.most, digits));
    format!("{median} ({least}–{most})")
}

/// Formats a number as `1,234,567.8`.
pub(crate) fn grouped(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(grouped(1_234_567.89, 1), "1,234,567.9");
        assert_eq!(grouped(999.0, 0), "999");
        assert_eq!(grouped(-1000.0, 0), "-1,000");
        assert_eq!(grouped(-100.0, 0), "-100");
    }
}
