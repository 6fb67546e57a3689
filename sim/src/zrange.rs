//! Commands on ranges of a sorted set, by rank and by score.

use crate::Value;
use crate::arguments::{float, integer, is_word, range};
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::sorted_set::SortedSet;

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "zrange" | "zrevrange" | "zrangebyscore" => read_range,
        "zcount" => |core, call| count(core, call, RangeKind::Score),
        "zremrangebyscore" => |core, call| remove(core, call, RangeKind::Score),
        _ => return None,
    })
}

/// The kind of a range's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeKind {
    Rank,
    Score,
}

/// A range of members.
#[derive(Debug)]
enum Span {
    Rank(i64, i64),
    Score(Bound, Bound),
}

/// One end of a range of scores.
#[derive(Debug)]
struct Bound {
    value: f64,
    is_in: bool,
}

impl Bound {
    /// Returns whether a score is above this lower bound, or at it.
    fn admits_above(&self, score: f64) -> bool {
        score > self.value || (self.is_in && score == self.value)
    }

    /// Returns whether a score is below this upper bound, or at it.
    fn admits_below(&self, score: f64) -> bool {
        score < self.value || (self.is_in && score == self.value)
    }
}

impl Span {
    fn parse(by: RangeKind, low: &[u8], high: &[u8]) -> Result<Self, Failure> {
        Ok(match by {
            RangeKind::Rank => Self::Rank(integer(low)?, integer(high)?),
            RangeKind::Score => Self::Score(score(low)?, score(high)?),
        })
    }

    fn members(&self, set: &SortedSet, is_reversed: bool) -> Vec<(Vec<u8>, f64)> {
        let owned = |(member, score): (&Vec<u8>, f64)| (member.clone(), score);
        let mut found: Vec<_> = match self {
            Self::Rank(first, last) => {
                let mut places = range(*first, *last, set.len());
                if is_reversed {
                    places = set.len() - places.end..set.len() - places.start;
                }
                set.iter()
                    .skip(places.start)
                    .take(places.len())
                    .map(owned)
                    .collect()
            }
            Self::Score(low, high) => set
                .iter()
                .skip_while(|(_, score)| !low.admits_above(*score))
                .take_while(|(_, score)| high.admits_below(*score))
                .map(owned)
                .collect(),
        };
        if is_reversed {
            found.reverse();
        }
        found
    }
}

fn score(text: &[u8]) -> Result<Bound, Failure> {
    let (is_in, number) = match text.strip_prefix(b"(") {
        Some(rest) => (false, rest),
        None => (true, text),
    };
    // C's strtod reads an empty text as 0, and a zero byte ends the text.
    let number = number.split(|&byte| byte == 0).next().unwrap_or_default();
    let number = number.trim_ascii_start();
    let value = if number.is_empty() {
        Some(0.0)
    } else {
        float(number)
    };
    let value = value.ok_or_else(|| Failure::general("min or max is not a float"))?;
    Ok(Bound { value, is_in })
}

fn read_range(core: &mut Core, call: &Call<'_>) -> Reply {
    let mut by = match call.name {
        "zrangebyscore" => RangeKind::Score,
        _ => RangeKind::Rank,
    };
    let is_open = call.name == "zrange";
    let mut is_chosen = false;
    let mut is_reversed = call.name.starts_with("zrev");
    let mut is_reversal_chosen = false;
    let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
    let mut options = call.args[4..].iter();
    while let Some(option) = options.next() {
        let rest = options.as_slice();
        if is_word(option, "withscores") {
            with_scores = true;
        } else if is_word(option, "limit")
            && let [first, most, ..] = rest
        {
            (offset, limit) = (integer(first)?, integer(most)?);
            options = rest[2..].iter();
        } else if is_open && !is_reversal_chosen && is_word(option, "rev") {
            is_reversed = true;
            is_reversal_chosen = true;
        } else if is_open && !is_chosen && is_word(option, "byscore") {
            by = RangeKind::Score;
            is_chosen = true;
        } else {
            return Err(Failure::syntax());
        }
    }
    if limit != -1 && by == RangeKind::Rank {
        return Err(Failure::general(
            "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    let (mut low, mut high) = (&call.args[2], &call.args[3]);
    if is_reversed && by != RangeKind::Rank {
        std::mem::swap(&mut low, &mut high);
    }
    let span = Span::parse(by, low, high)?;
    let set: Option<&SortedSet> = core.keyspace.read(&call.args[1])?;
    let mut found = set.map_or_else(Vec::new, |set| span.members(set, is_reversed));
    if by != RangeKind::Rank {
        let offset = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(found.len());
        found.drain(..offset);
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    Ok(if with_scores {
        Value::Scored(found)
    } else {
        Value::bulks(found.into_iter().map(|(member, _)| member))
    })
}

fn count(core: &mut Core, call: &Call<'_>, by: RangeKind) -> Reply {
    let span = Span::parse(by, &call.args[2], &call.args[3])?;
    let set: Option<&SortedSet> = core.keyspace.read(&call.args[1])?;
    Ok(Value::count(
        set.map_or(0, |set| span.members(set, false).len()),
    ))
}

fn remove(core: &mut Core, call: &Call<'_>, by: RangeKind) -> Reply {
    let span = Span::parse(by, &call.args[2], &call.args[3])?;
    let Some(set) = core.keyspace.write::<SortedSet>(&call.args[1])? else {
        return Ok(Value::Integer(0));
    };
    let found = span.members(set, false);
    for (member, _) in &found {
        set.remove(member);
    }
    if !found.is_empty() {
        core.keyspace.changed(&call.args[1]);
    }
    Ok(Value::count(found.len()))
}
