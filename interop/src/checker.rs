//! Checks the logs of all workers: finds grants of one lock that overlap, or whose tokens do not grow.

use crate::clock::Stamp;
use crate::failure::{Failure, Outcome};

/// One grant of a lock to one worker: from after it was granted until before it was released.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Grant {
    pub(crate) name: String,
    pub(crate) who: String,
    pub(crate) from: Stamp,
    pub(crate) to: Stamp,
    /// The token of a grant of a fenced lock.
    pub(crate) token: Option<u64>,
}

impl Grant {
    /// Returns the line of a log for this grant: `name who from to`, nanoseconds of the machine's monotonic clock, and its token if it has
    /// one.
    pub(crate) fn line(&self) -> String {
        let (from, to) = (self.from.nanos(), self.to.nanos());
        let token = self
            .token
            .map_or_else(String::new, |token| format!(" {token}"));
        format!("{} {} {from} {to}{token}", self.name, self.who)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        let who = words.next()?.to_owned();
        let mut stamp = || Some(Stamp::from_nanos(words.next()?.parse().ok()?));
        let (from, to) = (stamp()?, stamp()?);
        let token = match words.next() {
            None => None,
            Some(token) => Some(token.parse().ok()?),
        };
        let whole = from <= to && !who.is_empty() && words.next().is_none();
        whole.then_some(Self {
            name,
            who,
            from,
            to,
            token,
        })
    }
}

/// Two grants of one lock at the same time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Overlap {
    pub(crate) first: Grant,
    pub(crate) second: Grant,
}

/// A grant whose token is not greater than that of the one before it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Setback {
    pub(crate) first: Grant,
    pub(crate) second: Grant,
}

/// Reads a log. A line that is no grant is a failure: it may be the one that mattered.
pub(crate) fn read(log: &str) -> Outcome<Vec<Grant>> {
    log.lines()
        .map(|line| {
            Grant::parse(line).ok_or_else(|| Failure::new(format!("not a grant: `{line}`")))
        })
        .collect()
}

/// Returns every grant that began while another of the same lock had not ended, with the one that ended last of those that began before it.
/// A grant that begins in the nanosecond in which the other ends does not overlap.
pub(crate) fn overlaps(mut grants: Vec<Grant>) -> Vec<Overlap> {
    grants.sort_by(|a, b| (&a.name, a.from, a.to).cmp(&(&b.name, b.from, b.to)));
    let mut found = Vec::new();
    let mut last: Option<Grant> = None;
    for grant in grants {
        let Some(before) = last.as_ref().filter(|last| last.name == grant.name) else {
            last = Some(grant);
            continue;
        };
        if grant.from < before.to {
            found.push(Overlap {
                first: before.clone(),
                second: grant.clone(),
            });
        }
        if grant.to > before.to {
            last = Some(grant);
        }
    }
    found
}

/// Returns every grant that has no greater token than the last grant of the same lock that has one, in the order in which they began. It
/// expects grants that do not overlap.
pub(crate) fn setbacks(mut grants: Vec<Grant>) -> Vec<Setback> {
    grants.retain(|grant| grant.token.is_some());
    grants.sort_by(|a, b| (&a.name, a.from).cmp(&(&b.name, b.from)));
    let pairs = grants.windows(2);
    let worse = pairs.filter(|pair| pair[0].name == pair[1].name && pair[1].token <= pair[0].token);
    worse
        .map(|pair| Setback {
            first: pair[0].clone(),
            second: pair[1].clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: &[&str]) -> Vec<Grant> {
        read(&lines.join("\n")).expect("a history made up here is whole")
    }

    fn pairs(lines: &[&str]) -> Vec<(String, String)> {
        let found = overlaps(history(lines));
        found
            .into_iter()
            .map(|overlap| (overlap.first.who, overlap.second.who))
            .collect()
    }

    fn pair(first: &str, second: &str) -> (String, String) {
        (first.into(), second.into())
    }

    #[test]
    fn grants_one_after_the_other_do_not_overlap() {
        assert_eq!(pairs(&["a java 10 20", "a us 20 30", "a java 31 40"]), []);
        assert_eq!(pairs(&[]), []);
    }

    #[test]
    fn grants_of_different_locks_do_not_overlap() {
        assert_eq!(pairs(&["a java 10 20", "b us 10 20"]), []);
    }

    #[test]
    fn a_grant_that_begins_before_another_ends_overlaps_it() {
        assert_eq!(pairs(&["a java 10 20", "a us 19 30"]), [pair("java", "us")]);
    }

    #[test]
    fn a_grant_inside_another_overlaps_it() {
        assert_eq!(pairs(&["a java 10 40", "a us 20 30"]), [pair("java", "us")]);
    }

    #[test]
    fn two_grants_of_the_same_moments_overlap() {
        assert_eq!(pairs(&["a java 10 20", "a us 10 20"]).len(), 1);
    }

    #[test]
    fn a_long_grant_overlaps_every_later_one_it_covers_not_only_the_next() {
        let history = [
            "a java 10 100",
            "a us 20 30",
            "a we 40 50",
            "a they 100 110",
        ];
        let expected = [pair("java", "us"), pair("java", "we")];
        assert_eq!(pairs(&history), expected);
    }

    #[test]
    fn the_order_of_the_lines_does_not_matter() {
        let mixed = ["a us 19 30", "b we 1 5", "a java 10 20", "b they 4 9"];
        let expected = [pair("java", "us"), pair("we", "they")];
        assert_eq!(pairs(&mixed), expected);
    }

    #[test]
    fn overlapping_grants_of_one_client_are_found_too() {
        assert_eq!(pairs(&["a us 10 20", "a us 15 25"]).len(), 1);
    }

    #[test]
    fn a_token_that_does_not_grow_is_a_setback() {
        let setbacks = |lines: &[&str]| {
            let found = setbacks(history(lines));
            let pair = |setback: Setback| pair(&setback.first.who, &setback.second.who);
            found.into_iter().map(pair).collect::<Vec<_>>()
        };
        assert_eq!(setbacks(&["a us 10 20 5", "a java 20 30 6"]), []);
        assert_eq!(
            setbacks(&["a java 20 30 5", "a us 10 20 5"]),
            [pair("us", "java")],
            "the same one twice, in whatever order they are told"
        );
        assert_eq!(
            setbacks(&["a us 10 20 9", "a java 20 30 8", "a us 30 40 10"]),
            [pair("us", "java")]
        );
        assert_eq!(
            setbacks(&["a us 10 20 9", "b java 20 30 8", "a we 30 40"]),
            [],
            "of another lock, or without one"
        );
    }

    #[test]
    fn a_line_round_trips() {
        for line in ["a java/3 10 20", "a us/1 10 20 1790000000000001"] {
            let grants = history(&[line]);
            assert_eq!(grants[0].line(), line);
        }
    }

    #[test]
    fn a_line_that_is_no_grant_is_a_failure() {
        for line in [
            "a us 10",
            "a us 20 10",
            "a us x 10",
            "a us 1 2 x",
            "a us 1 2 3 4",
            "",
            "a  1 2",
        ] {
            assert!(read(line).is_err() || line.is_empty(), "`{line}`");
        }
        assert!(
            read("a us 10 20\n\na us 30 40").is_err(),
            "an empty line between"
        );
    }
}
