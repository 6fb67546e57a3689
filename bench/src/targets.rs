//! What is to be reached, as ratios within one run, and whether it was.

use std::fmt::Write as _;

use crate::book::{Book, Place, figure};
use crate::report::grouped;
use crate::scenario::{FEW_NAMES, FEW_WAITERS, MANY_NAMES, MANY_WAITERS};

/// Something to reach.
struct Target {
    what: String,
    /// `None` if it was not measured.
    value: Option<f64>,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            AtLeast(bound) => value >= bound,
            AtMost(bound) => value <= bound,
        }
    }

    fn words(self) -> String {
        match self {
            AtLeast(bound) => format!("≥ {}", short(bound)),
            AtMost(bound) => format!("≤ {}", short(bound)),
        }
    }
}

/// A line for each target that the run says something about.
pub(crate) fn list(book: &Book) -> String {
    let mut text = String::from("| target | | measured | |\n|---|---|--:|---|\n");
    let mut reached = 0;
    let mut measured = 0;
    for target in all(book) {
        let Some(value) = target.value else {
            continue;
        };
        measured += 1;
        let holds = target.bound.holds(value);
        reached += u32::from(holds);
        let verdict = if holds { "reached" } else { "**missed**" };
        let (what, bound, value) = (target.what, target.bound.words(), short(value));
        let _ = writeln!(text, "| {what} | {bound} | {value} | {verdict} |");
    }
    let _ = writeln!(text, "\n{reached} of {measured} reached.");
    text
}

fn all(book: &Book) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut add = |what: &str, bound: Bound, value: Option<f64>| {
        targets.push(Target {
            what: what.to_owned(),
            value,
            bound,
        });
    };
    let alone = ("U", "1");
    let crowd = ("U", "256");
    for (callers, bound) in [("16", 0.95), ("256", 1.40), ("4096", 1.15)] {
        let what = format!("U, {callers} callers ÷ raw ceiling");
        let ratio = ratio(book, ("U", callers), figure::RATE, Some("raw"));
        add(&what, AtLeast(bound), ratio);
        let what = format!("U, {callers} callers ÷ raw ceiling, one worker each");
        let ratio = book.ratio(("U", callers), figure::RATE, "distlock-one", "raw-one");
        add(&what, AtLeast(bound), ratio.map(|spread| spread.median));
    }
    let redisson = best(book, crowd, figure::RATE, &REDISSON);
    let other = best(book, crowd, figure::RATE, &OTHERS);
    add(
        "U, 256 ÷ Redisson at its best",
        AtLeast(15.0),
        ratio(book, crowd, figure::RATE, redisson),
    );
    add(
        "U, 256 ÷ Redisson's threads",
        AtLeast(20.0),
        ratio(book, crowd, figure::RATE, Some("redisson")),
    );
    add(
        &against("U, 256", other),
        AtLeast(2.5),
        ratio(book, crowd, figure::RATE, other),
    );
    add(
        "U, 1 caller p50 ÷ raw two round trips",
        AtMost(1.12),
        ratio(book, alone, figure::P50, Some("raw")),
    );
    add(
        "server CPU a cycle ÷ Redisson's, one by one",
        AtMost(0.70),
        ratio(book, alone, figure::SERVER_CPU, Some("redisson")),
    );
    add(
        "server CPU a cycle ÷ Redisson's, 256",
        AtMost(0.55),
        ratio(book, crowd, figure::SERVER_CPU, redisson),
    );
    let commands = book.median(alone, OURS, figure::COMMANDS);
    // Counted between two looks at the server: a stray one does not make a third.
    add(
        "commands an uncontended cycle",
        AtMost(2.0),
        commands.map(|count| (count * 20.0).round() / 20.0),
    );

    let c1 = ("C1", "1 × 64");
    let other = best(book, c1, figure::HANDOFFS, &OTHERS);
    add(
        "C1 hand-offs ÷ Redisson",
        AtLeast(120.0),
        ratio(
            book,
            c1,
            figure::HANDOFFS,
            best(book, c1, figure::HANDOFFS, &REDISSON),
        ),
    );
    add(
        &against("C1 hand-offs", other),
        AtLeast(40.0),
        ratio(book, c1, figure::HANDOFFS, other),
    );
    let c2 = ("C2", "4 × 16");
    add(
        "C2 hand-offs ÷ Redisson",
        AtLeast(100.0),
        ratio(
            book,
            c2,
            figure::HANDOFFS,
            best(book, c2, figure::HANDOFFS, &REDISSON),
        ),
    );
    add(
        "C2, share of the least lucky process",
        AtLeast(0.15),
        book.median(c2, OURS, figure::LEAST_SHARE),
    );
    let h = ("H", "2 processes");
    add(
        "H p50 ÷ Redisson's",
        AtMost(0.45),
        ratio(book, h, figure::P50, Some("redisson")),
    );
    add(
        "H p99 ÷ Redisson's",
        AtMost(0.2),
        ratio(book, h, figure::P99, Some("redisson")),
    );

    for cell in book.cells("W") {
        let value = |name| book.median(("W", &cell), OURS, name);
        add(
            &format!("W, {cell}: renewal scripts a second"),
            AtMost(200.0),
            value(figure::SCRIPTS),
        );
        add(
            &format!("W, {cell}: part of a core"),
            AtMost(0.05),
            value(figure::CLIENT_LOAD),
        );
        add(
            &format!("W, {cell}: bytes per held lock"),
            AtMost(600.0),
            value(figure::MEMORY),
        );
        add(
            &format!("W, {cell}: lost"),
            AtMost(0.0),
            value(figure::LOST),
        );
    }
    for cell in book.cells("Q") {
        let value = |name| book.median(("Q", &cell), OURS, name);
        add(
            &format!("Q, {cell}: subscriptions"),
            AtMost(1.0),
            value(figure::SUBSCRIPTIONS),
        );
        add(
            &format!("Q, {cell}: bytes per waiter"),
            AtMost(1024.0),
            value(figure::MEMORY),
        );
        add(
            &format!("Q, {cell}: scripts per hand-off"),
            AtMost(2.0),
            value(figure::SCRIPTS),
        );
    }
    let memory = book.median(("E", "alone"), "memory", figure::RATE);
    add(
        "E, memory engine, cycles a second",
        AtLeast(1_000_000.0),
        memory,
    );
    let growth = |few: &str, many: &str| {
        // The more in a second the cheaper: few over many is many's cost over few's.
        let spread = book.ratio_of((("G", few), OURS), (("G", many), OURS), figure::RATE);
        spread.map(|spread| spread.median)
    };
    add(
        "G, a cycle on many names ÷ on few",
        AtMost(1.1),
        growth(FEW_NAMES, MANY_NAMES),
    );
    add(
        "G, a hand-off with many waiters ÷ with few",
        AtMost(1.1),
        growth(FEW_WAITERS, MANY_WAITERS),
    );
    targets
}

/// Ours over another's.
fn ratio(book: &Book, at: Place<'_>, figure: &str, other: Option<&str>) -> Option<f64> {
    Some(book.ratio(at, figure, OURS, other?)?.median)
}

/// Who of them is fastest here.
fn best<'a>(book: &Book, at: Place<'_>, figure: &str, of: &[&'a str]) -> Option<&'a str> {
    let rate = |name: &str| book.median(at, name, figure);
    let measured = of.iter().filter(|name| rate(name).is_some());
    let best = measured.max_by(|one, other| {
        rate(one)
            .unwrap_or(0.0)
            .total_cmp(&rate(other).unwrap_or(0.0))
    });
    best.copied()
}

fn against(what: &str, other: Option<&str>) -> String {
    format!("{what} ÷ the fastest other ({})", other.unwrap_or("nobody"))
}

fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    grouped(value, digits)
}

const OURS: &str = "distlock";
const REDISSON: [&str; 2] = ["redisson", "redisson-async"];
const OTHERS: [&str; 5] = ["rslock", "redsync", "rueidislock", "redis-py", "redlock"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{Entry, Result};

    fn measured(contestant: &'static str, rate: f64) -> Entry {
        Entry {
            scenario: "U",
            cell: "256".into(),
            contestant,
            repetition: 0,
            result: Result::Figures([(figure::RATE, rate)].into()),
        }
    }

    #[test]
    fn a_target_is_held_against_whoever_is_fastest() {
        let mut book = Book::default();
        for (name, rate) in [
            ("distlock", 100.0),
            ("raw", 50.0),
            ("rslock", 10.0),
            ("redsync", 50.0),
        ] {
            book.entries.push(measured(name, rate));
        }
        let text = list(&book);
        assert!(
            text.contains("| U, 256 callers ÷ raw ceiling | ≥ 1.40 | 2 | reached |"),
            "{text}"
        );
        assert!(
            text.contains("(redsync) | ≥ 2.50 | 2 | **missed** |"),
            "{text}"
        );
        assert!(text.contains("1 of 2 reached"), "{text}");
    }
}
