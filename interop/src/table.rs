//! The table of results: the scenario, against which library, which way round, and the outcome.

use std::fmt::Write as _;
use std::time::Duration;

use crate::failure::Outcome;
use crate::library::Shared;

/// The results so far, in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

/// One scenario, played once.
#[derive(Debug)]
pub(crate) struct Row {
    /// The lock whose table the row is in.
    pub(crate) shared: Shared,
    /// The property that the scenario shows, in a few words.
    pub(crate) shows: &'static str,
    /// A library, and its version or versions.
    pub(crate) against: String,
    /// The side that held the lock.
    pub(crate) direction: &'static str,
    /// A remark for the table, or what went wrong.
    pub(crate) outcome: Outcome<String>,
    pub(crate) took: Duration,
}

/// Whether the table says how long each play took.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Times {
    /// Times are left out for a page: two runs look the same.
    Hide,
    Show,
}

impl Row {
    const fn verdict(&self) -> &'static str {
        if self.outcome.is_ok() {
            "passed"
        } else {
            "FAILED"
        }
    }

    /// Returns the line for the terminal of a run.
    pub(crate) fn line(&self) -> String {
        let Self {
            shows,
            against,
            direction,
            took,
            ..
        } = self;
        let remark = match &self.outcome {
            Ok(remark) if remark.is_empty() => String::new(),
            Ok(remark) => format!("  ({remark})"),
            Err(failure) => format!("\n    {}", failure.to_string().replace('\n', "\n    ")),
        };
        let (verdict, seconds) = (self.verdict(), took.as_secs_f64());
        format!("{verdict}  {seconds:5.1} s  {against:<23}  {direction:<11}  {shows}{remark}")
    }
}

impl Table {
    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(crate) fn passed(&self) -> usize {
        self.rows.iter().filter(|row| row.outcome.is_ok()).count()
    }

    pub(crate) fn failed(&self) -> usize {
        self.rows.len() - self.passed()
    }

    /// Returns the table as Markdown, empty if no scenario was played with this lock: a line for each scenario and direction, a column for
    /// each peer.
    pub(crate) fn markdown(&self, shared: Shared, times: Times) -> String {
        let rows = || self.rows.iter().filter(|row| row.shared == shared);
        if rows().next().is_none() {
            return String::new();
        }
        let peers = distinct(rows().map(|row| &row.against));
        let plays = distinct(rows().map(|row| (row.shows, row.direction)));
        let mut text = String::from("| scenario | direction |");
        for peer in &peers {
            let _ = write!(text, " {peer} |");
        }
        text += "\n|---|---|";
        text += &"---|".repeat(peers.len());
        for (shows, direction) in plays {
            let _ = write!(text, "\n| {shows} | {direction} |");
            for peer in &peers {
                let row = rows().find(|row| {
                    (row.shows, row.direction) == (shows, direction) && row.against == **peer
                });
                let cell = row.map_or_else(String::new, |row| match times {
                    Times::Hide => row.verdict().to_owned(),
                    Times::Show => format!("{}, {:.1} s", row.verdict(), row.took.as_secs_f64()),
                });
                let _ = write!(text, " {cell} |");
            }
        }
        text
    }
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    fn row(against: &str, direction: &'static str, outcome: Outcome<String>) -> Row {
        Row {
            shared: Shared::Plain,
            shows: "excludes",
            against: against.into(),
            direction,
            outcome,
            took: Duration::from_millis(1_250),
        }
    }

    fn table() -> Table {
        let mut table = Table::default();
        table.add(row("R 4", "Java holds", Ok("3 ms".into())));
        table.add(row("R 4", "we hold", Err(Failure::new("both held it"))));
        table.add(row("R 3", "Java holds", Ok(String::new())));
        table
    }

    #[test]
    fn a_failure_is_counted_and_listed_in_the_table() {
        let table = table();
        assert_eq!((table.passed(), table.failed()), (2, 1));
        let expected = "\
| scenario | direction | R 4 | R 3 |
|---|---|---|---|
| excludes | Java holds | passed, 1.2 s | passed, 1.2 s |
| excludes | we hold | FAILED, 1.2 s |  |";
        assert_eq!(table.markdown(Shared::Plain, Times::Show), expected);
        let plain = expected.replace(", 1.2 s", "");
        assert_eq!(table.markdown(Shared::Plain, Times::Hide), plain);
        assert_eq!(table.markdown(Shared::Simple, Times::Hide), "");
    }

    #[test]
    fn a_row_names_the_failure() {
        let lines: Vec<String> = table().rows.iter().map(Row::line).collect();
        assert!(lines[0].starts_with("passed") && lines[0].ends_with("(3 ms)"));
        assert!(lines[1].starts_with("FAILED") && lines[1].contains("both held it"));
    }
}
