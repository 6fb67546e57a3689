//! What is equal, what was seen, and how a difference is told.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use distlock::internals::engine::Failure;
use distlock::internals::protocol::{Action, Entry, Moment, Reply};

use super::generator::Step;

/// Whether both engines said the same. Times may differ by as much as an answer took.
pub(crate) fn agree(memory: &Reply, redis: &Reply, tolerance: Duration) -> bool {
    match (memory, redis) {
        (Reply::Busy { ttl: left }, Reply::Busy { ttl: right }) => close(*left, *right, tolerance),
        (Reply::Inspected(Some(left)), Reply::Inspected(Some(right))) => {
            left.owners == right.owners && close(left.ttl, right.ttl, tolerance)
        }
        (left, right) => left == right,
    }
}

fn close(left: Option<Duration>, right: Option<Duration>, tolerance: Duration) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => left.abs_diff(right) <= tolerance,
        (left, right) => left == right,
    }
}

/// One step of a sequence, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) sent: Moment,
    pub(crate) step: Step,
    pub(crate) memory: Reply,
    pub(crate) redis: Result<Reply, Failure>,
    /// Whether each listener heard of it, on either engine.
    pub(crate) heard: Heard,
}

/// Which of a name's listeners were told.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Heard {
    pub(crate) memory: Vec<bool>,
    pub(crate) redis: Vec<bool>,
}

/// A sequence whose last line differs.
#[derive(Debug)]
pub(crate) struct Divergence {
    pub(crate) name: String,
    pub(crate) what: String,
    pub(crate) lines: Vec<Line>,
}

impl Divergence {
    pub(crate) fn length(&self) -> usize {
        self.lines.len()
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.what)?;
        for line in &self.lines {
            let Step { action, road } = &line.step;
            writeln!(f, "  {:?}  {road:?}  {action:?}", line.sent)?;
            writeln!(f, "    memory  {:?}", line.memory)?;
            match &line.redis {
                Ok(reply) => writeln!(f, "    redis   {reply:?}")?,
                Err(failure) => writeln!(f, "    redis   {failure:?}")?,
            }
            if line.heard != Heard::default() {
                writeln!(f, "    heard   {:?}", line.heard)?;
            }
        }
        Ok(())
    }
}

/// How often each action got each reply.
#[derive(Debug, Default)]
pub(crate) struct Coverage(BTreeMap<(&'static str, &'static str), u64>);

impl Coverage {
    pub(crate) fn count(&mut self, action: &Action, reply: &Reply) {
        *self.0.entry(kind(action, reply)).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (kind, times) in &other.0 {
            *self.0.entry(*kind).or_default() += times;
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0.values().sum()
    }

    /// Every reply that one of these actions can get at all, each so often. One missing here would be a rule nobody
    /// tried.
    pub(crate) fn assert_everything_was_seen_of(&self, actions: &[&str], least: u64) {
        for kind in POSSIBLE {
            if !actions.contains(&kind.0) {
                continue;
            }
            let times = self.0.get(kind).copied().unwrap_or(0);
            assert!(times >= least, "{kind:?} was seen {times} times only");
        }
        for kind in self.0.keys() {
            assert!(POSSIBLE.contains(kind), "{kind:?} should be impossible");
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((action, reply), times) in &self.0 {
            writeln!(f, "  {action:<13} {reply:<28} {times:>6}")?;
        }
        Ok(())
    }
}

fn kind(action: &Action, reply: &Reply) -> (&'static str, &'static str) {
    let reply = match (action, reply) {
        // Nobody else listened, and yet it was not passed on: the taker had been undone.
        (
            Action::Pass {
                own_listeners: own, ..
            },
            Reply::Released { listeners },
        ) if listeners <= own => "released, taker undone",
        (_, Reply::Released { listeners: 0 }) => "released, nobody listened",
        (_, Reply::Released { listeners: 1 }) => "released, one listened",
        (_, Reply::Released { .. }) => "released, two listened",
        (
            Action::Acquire {
                entry: Entry::First,
                ..
            },
            Reply::Granted,
        ) => "granted once",
        (_, Reply::Granted) => "granted",
        (_, Reply::Busy { .. }) => "busy",
        (_, Reply::Forced(true)) => "forced",
        (_, Reply::Forced(false)) => "nothing to force",
        (_, Reply::Gone) => "gone",
        (_, Reply::Inspected(Some(_))) => "held",
        (_, Reply::Inspected(None)) => "free",
        (_, Reply::Kept) => "kept",
        (_, Reply::Marked) => "marked",
        (_, Reply::Renewed) => "renewed",
        (_, Reply::Taken) => "taken",
        (_, Reply::Undone) => "undone",
    };
    (name_of(action), reply)
}

pub(crate) const fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Acquire { .. } => "acquire",
        Action::ForceRelease => "force release",
        Action::Inspect => "inspect",
        Action::Pass { .. } => "pass",
        Action::Release { .. } => "release",
        Action::Renew { .. } => "renew",
        Action::Undo { .. } => "undo",
    }
}

pub(crate) const EVERYTHING: &[&str] = &[
    "acquire",
    "force release",
    "inspect",
    "pass",
    "release",
    "renew",
    "undo",
];
/// What travels together.
pub(crate) const TRAVELLERS: &[&str] = &["acquire", "pass", "release"];
const POSSIBLE: &[(&str, &str)] = &[
    ("acquire", "busy"),
    ("acquire", "gone"),
    ("acquire", "granted once"),
    ("acquire", "granted"),
    ("acquire", "undone"),
    ("force release", "forced"),
    ("force release", "nothing to force"),
    ("inspect", "free"),
    ("inspect", "held"),
    ("pass", "gone"),
    ("pass", "granted"),
    ("pass", "released, one listened"),
    ("pass", "released, taker undone"),
    ("pass", "released, two listened"),
    ("pass", "taken"),
    ("release", "gone"),
    ("release", "kept"),
    ("release", "released, nobody listened"),
    ("release", "released, one listened"),
    ("release", "released, two listened"),
    ("release", "taken"),
    ("renew", "gone"),
    ("renew", "renewed"),
    ("renew", "taken"),
    ("undo", "kept"),
    ("undo", "marked"),
    ("undo", "released, nobody listened"),
    ("undo", "released, one listened"),
    ("undo", "released, two listened"),
];
