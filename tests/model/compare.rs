//! The comparison of replies, their coverage, and the display of a divergence.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use distlock::internals::engine::{StoreError, StoreErrorKind};
use distlock::internals::protocol::{
    Action, CounterOp, Entry, FencingToken, HolderSnapshot, Kind, Moment, Reply,
};

use super::generator::Step;
use super::kinds::Kinds;

/// Returns whether both engines gave the same reply. Times may differ by the latency of a request.
pub(crate) fn agree(
    memory: &Result<Reply, StoreError>,
    redis: &Result<Reply, StoreError>,
    tolerance: Duration,
) -> bool {
    let (memory, redis) = match (memory, redis) {
        (Ok(memory), Ok(redis)) => (memory, redis),
        // The texts of the engines' errors differ.
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
        // The numbers of tokens are each store's own, see `Tokens`.
        (Reply::Granted { token: left }, Reply::Granted { token: right }) => {
            left.is_some() == right.is_some()
        }
        (left, right) => left == right,
    }
}

/// Pairs of tokens that both engines granted at the same moments. The numbers are each store's own, but a token that is
/// greater than another in one store is greater in the other store as well.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Vec<(FencingToken, FencingToken)>);

impl Tokens {
    /// Adds a pair of tokens, and returns whether it fits those before.
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

/// One step of a sequence, with its replies.
#[derive(Clone, Debug)]
pub(crate) struct StepRecord {
    pub(crate) sent: Moment,
    pub(crate) step: Step,
    pub(crate) memory: Result<Reply, StoreError>,
    pub(crate) redis: Result<Reply, StoreError>,
    /// Which listeners were notified, on either engine.
    pub(crate) heard: Notified,
}

/// The listeners of a name that were notified.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Notified {
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

impl fmt::Display for StepRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { kind, action, road } = &self.step;
        writeln!(f, "  {:?}  {road:?}  {kind:?}  {action:?}", self.sent)?;
        tell(f, &self.memory, &self.redis)?;
        write!(f, "{}", self.heard)
    }
}

/// Writes the replies of both engines.
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

impl fmt::Display for Notified {
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
    pub(crate) fn count(&mut self, line: &StepRecord) {
        self.note(kind(&line.step.action, &line.memory));
    }

    pub(crate) fn note(&mut self, kind: (&'static str, &'static str)) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// Returns how often this action got this reply.
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

    /// Checks that these actions got every possible reply at least this often, and no impossible one. A missing reply would
    /// be a rule without a test.
    pub(crate) fn assert_everything_was_seen_of(&self, actions: &[&str], kinds: Kinds, least: u64) {
        let gaps = self.gaps(actions, kinds, least);
        assert!(gaps.is_empty(), "{gaps:#?}");
    }

    /// Returns the possible replies that were not seen this often, and the impossible ones that were.
    pub(crate) fn gaps(&self, actions: &[&str], kinds: Kinds, least: u64) -> Vec<String> {
        let mut gaps = Vec::new();
        let heard = |kind: &(&str, &str)| kind.1.ends_with("listened") && kind.1 != NOBODY;
        let possible = |kind: &(&str, &str)| match kinds {
            // A reply does not name the holders of other permits, and permits are not handed off.
            Kinds::Only(Kind::Semaphore) => {
                kind.1 != WRONG
                    && kind.1 != "taken"
                    && !matches!(kind.0, "alter" | "pass" | "take")
                    && *kind != ("undo", "kept")
            }
            // A latch has no holder.
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
            // A simple lock has no hold count, so that an undo cannot keep a part of it.
            Kinds::Only(Kind::Simple) => kind.1 != WRONG && *kind != ("undo", "kept"),
            // Only the head of the queue acquires a fair lock, and only queued waiters are notified.
            Kinds::Only(Kind::Fair) => {
                kind.1 != WRONG && *kind != ("pass", "granted") && !heard(kind)
            }
            Kinds::Any(_) if kinds.may_be_wrong() => true,
            // These locks are not handed off.
            Kinds::Any(_) | Kinds::Only(Kind::Read | Kind::Write) => {
                kind.1 != WRONG && *kind != ("pass", "granted")
            }
        };
        for kind in POSSIBLE {
            // If all kinds share a name, the listeners subscribe to the channel of one kind only.
            let unheard = kinds.may_be_wrong() && heard(kind);
            if !actions.contains(&kind.0) || !possible(kind) || unheard {
                continue;
            }
            let times = self.of(*kind);
            if times < least {
                gaps.push(format!("{kind:?} was seen {times} times only"));
            }
        }
        for kind in self.0.keys() {
            if !POSSIBLE.contains(kind) || !possible(kind) {
                gaps.push(format!("{kind:?} should be impossible"));
            }
        }
        gaps
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
        // There was no other listener, and yet the lock was not handed off: the taker had been undone.
        (
            Action::Transfer {
                own_subscribers: own,
                ..
            },
            Reply::Released { subscribers },
        ) if subscribers <= own => "released, taker undone",
        (_, Reply::Released { subscribers: 0 }) => NOBODY,
        (_, Reply::Released { subscribers: 1 }) => "released, one listened",
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
/// The actions that travel in batches.
pub(crate) const TRAVELLERS: &[&str] = &["acquire", "pass", "release"];
/// The reply if the name has a state of another kind.
const WRONG: &str = "wrong kind";
/// A counter can be read, but has no holder from which a forced release could take it.
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
