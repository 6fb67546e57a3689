//! The times during which processes believed that they held a lock, and the overlaps between such beliefs.

use std::time::Duration;

use distlock::{Held, LostReason};
use rustix::time::{ClockId, clock_gettime};

/// The time from which and until which a process counted a lock as its own: only that much can be shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HoldInterval {
    pub(crate) name: String,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

impl HoldInterval {
    /// Returns the text that a worker prints; see [`parse`](Self::parse).
    pub(crate) fn to_line(&self) -> String {
        let Self { name, from, until } = self;
        format!("{} {} {name}", from.as_nanos(), until.as_nanos())
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        let mut moment = || words.next()?.parse().ok().map(Duration::from_nanos);
        let (from, until) = (moment()?, moment()?);
        let name = words.next()?.to_owned();
        Some(Self { name, from, until })
    }
}

/// Two beliefs in one lock at the same time, the earlier first, and the length of the overlap.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Overlap {
    pub(crate) first: HoldInterval,
    pub(crate) second: HoldInterval,
    pub(crate) length: Duration,
}

/// Returns each belief that began while another of the same lock lasted.
pub(crate) fn overlaps(mut beliefs: Vec<HoldInterval>) -> Vec<Overlap> {
    beliefs.sort_by(|one, other| (&one.name, one.from).cmp(&(&other.name, other.from)));
    let mut found = Vec::new();
    let mut lasting: Option<HoldInterval> = None;
    for second in beliefs {
        let before = lasting.take().filter(|first| first.name == second.name);
        let Some(first) = before else {
            lasting = Some(second);
            continue;
        };
        let length = first.until.min(second.until).saturating_sub(second.from);
        // The belief that ends last is the one that later ones may overlap.
        lasting = Some(if first.until > second.until {
            first.clone()
        } else {
            second.clone()
        });
        if !length.is_zero() {
            let overlap = Overlap {
                first,
                second,
                length,
            };
            found.push(overlap);
        }
    }
    found
}

/// Follows one hold, and records until when it was surely believed in.
///
/// A guard that has once returned "not held" never returns "held" again: at the moment before a "held" it was believed in, however late the
/// machine lets this process check.
pub(crate) struct HoldLog {
    belief: HoldInterval,
    /// The end of the hold if nothing else is learned.
    valid_until: Duration,
}

impl HoldLog {
    /// Begins a record; returns `None` if the hold has expired already.
    pub(crate) fn begin(held: &Held) -> Option<Self> {
        let now = now();
        let mut diary = Self {
            belief: HoldInterval {
                name: held.name().to_owned(),
                from: now,
                until: now,
            },
            valid_until: now,
        };
        diary.check_hold(held).then_some(diary)
    }

    /// Checks the hold, and returns whether it is still believed in.
    pub(crate) fn check_hold(&mut self, held: &Held) -> bool {
        let now = now();
        let left = held.remaining();
        if left.is_zero() {
            return false;
        }
        self.belief.until = now;
        self.valid_until = now + left;
        true
    }

    /// Ends the record of a hold that is about to be released, or was lost for this reason.
    pub(crate) fn end(mut self, lost: Option<LostReason>) -> HoldInterval {
        if lost == Some(LostReason::Expired) {
            // The hold was lost by the clock, then, and no loss was reported before.
            self.belief.until = self.belief.until.max(self.valid_until);
        }
        self.belief
    }
}

/// Returns the time on the clock that leases are counted by, which is the same for all processes.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::try_from(now).expect("it is later than the start")
}

#[cfg(test)]
mod tests {
    use super::{Duration, HoldInterval, overlaps};

    fn belief(name: &str, from: u64, until: u64) -> HoldInterval {
        HoldInterval {
            name: name.to_owned(),
            from: Duration::from_millis(from),
            until: Duration::from_millis(until),
        }
    }

    #[test]
    fn sequential_holds_do_not_overlap() {
        let beliefs = vec![belief("a", 10, 20), belief("a", 20, 30), belief("a", 0, 10)];
        assert_eq!(overlaps(beliefs), []);
    }

    #[test]
    fn holds_of_different_locks_do_not_overlap() {
        let beliefs = vec![belief("a", 0, 20), belief("b", 10, 30)];
        assert_eq!(overlaps(beliefs), []);
    }

    #[test]
    fn an_overlap_that_was_planted_is_found() {
        let many = (0..1000).map(|at| belief("a", at * 10, at * 10 + 9));
        let others = (0..1000).map(|at| belief("b", at * 10, at * 10 + 10));
        let planted = belief("a", 5_008, 5_009);
        let beliefs = others.chain(many).chain([planted.clone()]);
        let found = overlaps(beliefs.collect());
        let [overlap] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(overlap.second, planted);
        assert_eq!(overlap.first, belief("a", 5_000, 5_009));
        assert_eq!(overlap.length, Duration::from_millis(1));
    }

    #[test]
    fn a_long_hold_overlaps_each_shorter_one() {
        let beliefs = vec![
            belief("a", 0, 100),
            belief("a", 10, 20),
            belief("a", 30, 40),
            belief("a", 50, 60),
        ];
        assert_eq!(overlaps(beliefs).len(), 3);
    }

    #[test]
    fn a_reported_interval_round_trips() {
        let said = belief("{a} b", 3, 7);
        assert_eq!(HoldInterval::parse(&said.to_line()), Some(said));
        assert_eq!(HoldInterval::parse("3 seven a"), None);
    }
}
