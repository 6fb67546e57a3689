//! The targets of a run, as ratios of its figures, and whether they are met.

use std::fmt::Write as _;

use crate::book::{Book, FigureKey, Spread, figure};
use crate::report::grouped;
use crate::roster::{self, OURS, Side};
use crate::scenario::{FEW_NAMES, FEW_WAITERS, MANY_NAMES, MANY_WAITERS};

/// One target.
struct Target {
    what: String,
    /// The value; `None` if it was not measured.
    value: Option<Spread>,
    /// The bound; `None` for a value that is shown beside a target and is none itself.
    bound: Option<Bound>,
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

/// Returns a line for each target that the run has figures for.
pub(crate) fn list(book: &Book) -> String {
    let mut text = String::from("| target | | measured | |\n|---|---|--:|---|\n");
    let mut reached = 0;
    let mut measured = 0;
    let mut missing = 0;
    for target in all(book) {
        let Target { what, value, bound } = target;
        let words = bound.map_or_else(String::new, Bound::words);
        let Some(value) = value else {
            missing += u32::from(bound.is_some());
            continue;
        };
        let verdict = match bound.map(|bound| bound.holds(value.median)) {
            Some(true) => "reached",
            Some(false) => "**missed**",
            None => "",
        };
        measured += u32::from(bound.is_some());
        reached += u32::from(verdict == "reached");
        let _ = writeln!(text, "| {what} | {words} | {} | {verdict} |", spread(value));
    }
    let _ = write!(text, "\n{reached} of {measured} reached");
    if missing > 0 {
        let _ = write!(text, ", {missing} not measured in this run");
    }
    text.push_str(".\n");
    text
}

/// Returns which bounds the shortest run broke, on a crowded machine and in a build that is not optimised. They are counts: times mean
/// nothing there.
pub(crate) fn gates(book: &Book) -> Vec<String> {
    let (alone, crowd) = (("U", "1"), ("U", "256"));
    let gates = [
        (
            "commands a cycle, one by one",
            alone,
            book.median(alone, OURS, figure::COMMANDS),
            2.05,
        ),
        (
            "commands a cycle, 256 callers",
            crowd,
            book.median(crowd, OURS, figure::COMMANDS),
            // Half as many are needed; without a limit on in-flight calls a quarter more than this.
            0.12,
        ),
    ];
    let gates = gates.into_iter().filter_map(|(what, at, value, most)| {
        // Without figures there is nothing to check.
        book.median(at, OURS, figure::RATE)?;
        gate(what, value, most)
    });
    let alone = ("F", "1");
    let family = roster::ALL.iter().filter(|one| one.is_family());
    let family = family.filter_map(|one| {
        book.median(alone, one.name, figure::RATE)?;
        let commands = book.median(alone, one.name, figure::COMMANDS);
        // Three locks: the first request is sent before the others are there, the others then travel in one batch; so do the releases.
        let most = if one.name == "multi" { 4.05 } else { 2.05 };
        gate(&format!("commands a cycle, {}", one.name), commands, most)
    });
    gates.chain(family).collect()
}

/// Returns what is wrong if this is more than is allowed.
fn gate(what: &str, value: Option<f64>, most: f64) -> Option<String> {
    match value {
        Some(value) if value <= most => None,
        Some(value) => Some(format!("{what}: {value:.2}, and at most {most} is allowed")),
        None => Some(format!("{what}: it was not measured")),
    }
}

fn all(book: &Book) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut add = |what: &str, bound: Bound, value: Option<Spread>| {
        targets.push(Target {
            what: what.to_owned(),
            value,
            bound: Some(bound),
        });
    };
    let (redissons, others) = (of(Side::Redisson), of(Side::Other));
    let alone = ("U", "1");
    let crowd = ("U", "256");
    for (callers, bound) in [("16", 0.95), ("256", 1.40), ("4096", 1.15)] {
        let what = format!("U, {callers} callers ÷ raw ceiling");
        let ratio = ratio(book, ("U", callers), figure::RATE, Some("raw"));
        add(&what, AtLeast(bound), ratio);
    }
    let redisson = best(book, crowd, figure::RATE, &redissons);
    let other = best(book, crowd, figure::RATE, &others);
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
    let least = |at, figure| ratio(book, at, figure, least(book, at, figure, &redissons));
    add(
        "server CPU a cycle ÷ Redisson's, one by one",
        AtMost(0.70),
        least(alone, figure::SERVER_CPU),
    );
    add(
        "server CPU a cycle ÷ Redisson's, 256",
        AtMost(0.55),
        least(crowd, figure::SERVER_CPU),
    );
    let commands = book.spread(alone, OURS, figure::COMMANDS);
    // Counted between two readings of the server's gauges, so one stray command does not look like a third one in every cycle.
    add(
        "commands an uncontended cycle",
        AtMost(2.0),
        commands.map(|count| Spread::one((count.median * 20.0).round() / 20.0)),
    );

    let c1 = ("C1", "1 × 64");
    let other = best(book, c1, figure::HANDOFFS, &others);
    add(
        "C1 hand-offs ÷ Redisson",
        AtLeast(120.0),
        ratio(
            book,
            c1,
            figure::HANDOFFS,
            best(book, c1, figure::HANDOFFS, &redissons),
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
            best(book, c2, figure::HANDOFFS, &redissons),
        ),
    );
    add(
        "C2, share of the least lucky process",
        AtLeast(0.15),
        book.spread(c2, OURS, figure::LEAST_SHARE)
            .map(|share| Spread::one(share.least)),
    );
    let h = ("H", "2 processes");
    add("H p50 ÷ Redisson's", AtMost(0.45), least(h, figure::P50));
    add("H p99 ÷ Redisson's", AtMost(0.2), least(h, figure::P99));

    for cell in book.cells("W") {
        let value = |name| book.spread(("W", &cell), OURS, name);
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
        let value = |name| book.spread(("Q", &cell), OURS, name);
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
    let memory = book.spread(("E", "alone"), "memory", figure::RATE);
    add(
        "E, memory engine, cycles a second",
        AtLeast(1_000_000.0),
        memory,
    );
    let growth =
        |few: &str, many: &str| book.ratio_of((("G", many), OURS), (("G", few), OURS), figure::CPU);
    add(
        "G, CPU of a cycle on many names ÷ on few",
        AtMost(1.1),
        growth(FEW_NAMES, MANY_NAMES),
    );
    add(
        "G, CPU of a cycle with many waiters ÷ with few",
        AtMost(1.1),
        growth(FEW_WAITERS, MANY_WAITERS),
    );
    for callers in ["16", "256", "4096"] {
        let twins = book.ratio(("U", callers), figure::RATE, "distlock-one", "raw-one");
        targets.push(Target {
            what: format!("beside: U, {callers} callers ÷ raw ceiling, one worker thread each"),
            value: twins,
            bound: None,
        });
    }
    targets
}

/// Returns distlock's figure over another's.
fn ratio(book: &Book, at: FigureKey<'_>, figure: &str, other: Option<&str>) -> Option<Spread> {
    let other = other?;
    if of(Side::Redisson).contains(&other) {
        return book.warm_ratio(at, figure, OURS, other);
    }
    book.ratio(at, figure, OURS, other)
}

/// Returns which of them has the greatest figure here.
fn best<'a>(book: &Book, at: FigureKey<'_>, figure: &str, of: &[&'a str]) -> Option<&'a str> {
    ranked(book, at, figure, of).pop()
}

/// Returns which of them has the least figure here.
fn least<'a>(book: &Book, at: FigureKey<'_>, figure: &str, of: &[&'a str]) -> Option<&'a str> {
    ranked(book, at, figure, of).first().copied()
}

fn ranked<'a>(book: &Book, at: FigureKey<'_>, figure: &str, of: &[&'a str]) -> Vec<&'a str> {
    let value = |name: &str| book.median(at, name, figure);
    let mut measured: Vec<_> = of
        .iter()
        .filter_map(|name| Some((value(name)?, *name)))
        .collect();
    measured.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    measured.into_iter().map(|(_, name)| name).collect()
}

fn against(what: &str, other: Option<&str>) -> String {
    format!("{what} ÷ the fastest other ({})", other.unwrap_or("nobody"))
}

/// Returns the median, with the smallest and greatest value.
fn spread(value: Spread) -> String {
    let [median, least, most] = [value.median, value.least, value.most].map(short);
    if least == most {
        return median;
    }
    format!("{median} ({least}–{most})")
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

/// Returns the contestants of one side that lock on a server.
fn of(side: Side) -> Vec<&'static str> {
    let all = roster::on_a_server().filter(|one| one.side == side);
    all.map(|one| one.name).collect()
}

#[cfg(test)]
mod tests;
