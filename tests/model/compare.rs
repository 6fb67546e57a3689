//! What is equal, what was seen, and how a difference is told.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use distlock::internals::engine::{StoreError, StoreErrorKind};
use distlock::internals::protocol::{
    Action, CounterOp, Entry, FencingToken, HolderSnapshot, Kind, Moment, Reply,
};

use super::generator::Step;
use super::kinds::Kinds;

/// Whether both engines said the same. Times may differ by as much as an answer took.
pub(crate) fn agree(
    memory: &Result<Reply, StoreError>,
    redis: &Result<Reply, StoreError>,
    tolerance: Duration,
) -> bool {
    let (memory, redis) = match (memory, redis) {
        (Ok(memory), Ok(redis)) => (memory, redis),
        // Each says it in its own words.
        (Err(memory), Err(redis)) => {
            return memory.kind == StoreErrorKind::WrongKind
                && redis.kind == StoreErrorKind::WrongKind;
        }
        (_, _) => return false,
    };
    match (memory, redis) {
        (Reply::Busy { ttl: left }, Reply::Busy { ttl: right }) => close(*left, *right, tolerance),
        (Reply::Inspected(Some(left)), Reply::Inspected(Some(right))) => {
            (&left.waiting, left.writes) == (&right.waiting, right.writes)
                && close(left.ttl, right.ttl, tolerance)
                && left.owners.len() == right.owners.len()
                && left
                    .owners
                    .iter()
                    .zip(&right.owners)
                    .all(|(left, right)| same_holder(left, right, tolerance))
        }
        // Their numbers are each store's own, see `Tokens`.
        (Reply::Granted { token: left }, Reply::Granted { token: right }) => {
            left.is_some() == right.is_some()
        }
        (left, right) => left == right,
    }
}

/// The tokens that both have given at the same moments: each store's own, but one greater than the other here is greater
/// there.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Vec<(FencingToken, FencingToken)>);

impl Tokens {
    /// Whether these fit to those before.
    pub(crate) fn fit(
        &mut self,
        memory: &Result<Reply, StoreError>,
        store: &Result<Reply, StoreError>,
    ) -> bool {
        let (Some(here), Some(there)) = (token(memory), token(store)) else {
            return true;
        };
        let fits =
            |before: &(FencingToken, FencingToken)| here.cmp(&before.0) == there.cmp(&before.1);
        let fit = self.0.iter().all(fits);
        self.0.push((here, there));
        fit
    }
}

fn token(reply: &Result<Reply, StoreError>) -> Option<FencingToken> {
    match reply {
        Ok(Reply::Granted { token }) => *token,
        Ok(Reply::Inspected(Some(holding))) => holding.token,
        _ => None,
    }
}

fn same_holder(left: &HolderSnapshot, right: &HolderSnapshot, tolerance: Duration) -> bool {
    (&left.owner, left.count) == (&right.owner, right.count)
        && close(left.ttl, right.ttl, tolerance)
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
    pub(crate) memory: Result<Reply, StoreError>,
    pub(crate) redis: Result<Reply, StoreError>,
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
    pub(crate) lines: Vec<String>,
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
            write!(f, "{line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { kind, action, road } = &self.step;
        writeln!(f, "  {:?}  {road:?}  {kind:?}  {action:?}", self.sent)?;
        tell(f, &self.memory, &self.redis)?;
        write!(f, "{}", self.heard)
    }
}

/// What both have answered.
pub(crate) fn tell(
    f: &mut fmt::Formatter<'_>,
    memory: &Result<Reply, StoreError>,
    store: &Result<Reply, StoreError>,
) -> fmt::Result {
    for (engine, answer) in [("memory", memory), ("store ", store)] {
        match answer {
            Ok(reply) => writeln!(f, "    {engine}  {reply:?}")?,
            Err(failure) => writeln!(f, "    {engine}  {failure:?}")?,
        }
    }
    Ok(())
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self == &Self::default() {
            true => Ok(()),
            false => writeln!(f, "    heard   {self:?}"),
        }
    }
}

/// How often each action got each reply.
#[derive(Debug, Default)]
pub(crate) struct Coverage(BTreeMap<(&'static str, &'static str), u64>);

impl Coverage {
    pub(crate) fn count(&mut self, line: &Line) {
        self.note(kind(&line.step.action, &line.memory));
    }

    pub(crate) fn note(&mut self, kind: (&'static str, &'static str)) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// How often this has come.
    pub(crate) fn of(&self, kind: (&'static str, &'static str)) -> u64 {
        self.0.get(&kind).copied().unwrap_or(0)
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
    pub(crate) fn assert_everything_was_seen_of(&self, actions: &[&str], kinds: Kinds, least: u64) {
        let heard = |kind: &(&str, &str)| kind.1.ends_with("listened") && kind.1 != NOBODY;
        let possible = |kind: &(&str, &str)| match kinds {
            // Nobody is told who has the others, nor given one by another.
            Kinds::Only(Kind::Semaphore) => {
                kind.1 != WRONG
                    && kind.1 != "taken"
                    && !matches!(kind.0, "alter" | "pass" | "take")
                    && *kind != ("undo", "kept")
            }
            // Nobody holds it.
            Kinds::Only(Kind::Latch) => matches!(
                *kind,
                ("alter", _) | ("inspect", "free" | "held") | ("undo", "marked") | NOTHING | LOOKED
            ),
            Kinds::Only(Kind::Counting) => match *kind {
                ("alter" | "take", _) | ("inspect", "free" | "held") | NOTHING | LOOKED => true,
                ("undo" | "release", found) => !matches!(found, "kept" | "taken") && found != WRONG,
                _ => false,
            },
            _ if matches!(kind.0, "alter" | "count" | "take") => false,
            Kinds::Only(Kind::Mutex | Kind::Fenced) => kind.1 != WRONG,
            // Nobody counts, so that nothing can be kept of it.
            Kinds::Only(Kind::Simple) => kind.1 != WRONG && *kind != ("undo", "kept"),
            // Nobody gets it but the first in line, and nobody but them hears of it.
            Kinds::Only(Kind::Fair) => {
                kind.1 != WRONG && *kind != ("pass", "granted") && !heard(kind)
            }
            Kinds::Any(_) if kinds.may_be_wrong() => true,
            // Nobody is given it by another.
            Kinds::Any(_) | Kinds::Only(Kind::Read | Kind::Write) => {
                kind.1 != WRONG && *kind != ("pass", "granted")
            }
        };
        for kind in POSSIBLE {
            // Where all are asked for, only those are listened to who wait for one.
            let unheard = kinds.may_be_wrong() && heard(kind);
            if !actions.contains(&kind.0) || !possible(kind) || unheard {
                continue;
            }
            let times = self.of(*kind);
            assert!(times >= least, "{kind:?} was seen {times} times only");
        }
        for kind in self.0.keys() {
            let could = POSSIBLE.contains(kind) && possible(kind);
            assert!(could, "{kind:?} should be impossible");
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

fn kind(action: &Action, reply: &Result<Reply, StoreError>) -> (&'static str, &'static str) {
    let Ok(reply) = reply else {
        return (name_of(action), WRONG);
    };
    let reply = match (action, reply) {
        // Nobody else listened, and yet it was not passed on: the taker had been undone.
        (
            Action::Transfer {
                own_listeners: own, ..
            },
            Reply::Released { listeners },
        ) if listeners <= own => "released, taker undone",
        (_, Reply::Released { listeners: 0 }) => NOBODY,
        (_, Reply::Released { listeners: 1 }) => "released, one listened",
        (_, Reply::Released { .. }) => "released, two listened",
        (
            Action::Acquire {
                entry: Entry::Fresh,
                ..
            },
            Reply::Granted { .. },
        ) => "granted once",
        (_, Reply::Granted { .. }) => "granted",
        (_, Reply::Altered { before, after }) if before == after => "the same",
        (_, Reply::Altered { .. }) => "another",
        (_, Reply::Busy { .. }) => "busy",
        (_, Reply::Counted { done: true, .. }) => "done",
        (_, Reply::Counted { done: false, .. }) => "looked",
        (_, Reply::Forced(true)) => "forced",
        (_, Reply::Forced(false)) => "nothing to force",
        (_, Reply::Gone) => "gone",
        (_, Reply::Inspected(Some(_))) => "held",
        (_, Reply::Inspected(None)) => "free",
        (_, Reply::Kept) => "kept",
        (_, Reply::Tombstoned) => "marked",
        (_, Reply::Renewed) => "renewed",
        (_, Reply::Taken) => "taken",
        (_, Reply::Undone) => "undone",
    };
    (name_of(action), reply)
}

pub(crate) const fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Acquire { .. } => "acquire",
        Action::CounterOp {
            change: CounterOp::Take { .. },
            ..
        } => "take",
        Action::CounterOp { .. } => "alter",
        Action::SemaphoreOp(_) => "count",
        Action::ForceRelease => "force release",
        Action::Inspect => "inspect",
        Action::Transfer { .. } => "pass",
        Action::Release { .. } => "release",
        Action::Renew { .. } => "renew",
        Action::Undo { .. } => "undo",
    }
}

pub(crate) const EVERYTHING: &[&str] = &[
    "acquire",
    "alter",
    "count",
    "force release",
    "inspect",
    "pass",
    "release",
    "renew",
    "take",
    "undo",
];
/// What travels together.
pub(crate) const TRAVELLERS: &[&str] = &["acquire", "pass", "release"];
/// Something of another kind is there.
const WRONG: &str = "wrong kind";
/// Numbers are there to be looked at, and to be taken from nobody.
const LOOKED: (&str, &str) = ("count", "looked");
const NOTHING: (&str, &str) = ("force release", "nothing to force");
const NOBODY: &str = "released, nobody listened";
const POSSIBLE: &[(&str, &str)] = &[
    ("acquire", "busy"),
    ("acquire", "gone"),
    ("acquire", "granted once"),
    ("acquire", "granted"),
    ("acquire", "undone"),
    ("acquire", WRONG),
    ("alter", "another"),
    ("alter", "the same"),
    ("alter", "undone"),
    ("count", "done"),
    ("count", "looked"),
    ("force release", "forced"),
    ("force release", "nothing to force"),
    ("force release", WRONG),
    ("inspect", "free"),
    ("inspect", "held"),
    ("inspect", WRONG),
    ("pass", "gone"),
    ("pass", "granted"),
    ("pass", "released, one listened"),
    ("pass", "released, taker undone"),
    ("pass", "released, two listened"),
    ("pass", "taken"),
    ("pass", WRONG),
    ("release", "gone"),
    ("release", "kept"),
    ("release", NOBODY),
    ("release", "released, one listened"),
    ("release", "released, two listened"),
    ("release", "taken"),
    ("release", WRONG),
    ("renew", "gone"),
    ("renew", "renewed"),
    ("renew", "taken"),
    ("renew", WRONG),
    ("take", "busy"),
    ("take", "granted"),
    ("take", "undone"),
    ("undo", "kept"),
    ("undo", "marked"),
    ("undo", NOBODY),
    ("undo", "released, one listened"),
    ("undo", "released, two listened"),
];
