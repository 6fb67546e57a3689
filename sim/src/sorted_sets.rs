//! Commands on sorted sets, except those on ranges.

use crate::Value;
use crate::arguments::{float, is_word};
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::sorted_set::SortedSet;

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "zadd" => add,
        "zincrby" => |core, call| {
            let options = Options {
                increments: true,
                ..Options::default()
            };
            change(core, call, &options, &call.args[2..])
        },
        "zrem" => |core, call| {
            let Some(set) = core.keyspace.write::<SortedSet>(&call.args[1])? else {
                return Ok(Value::Integer(0));
            };
            let removed = call.args[2..]
                .iter()
                .filter(|member| set.remove(member))
                .count();
            if removed > 0 {
                core.keyspace.changed(&call.args[1]);
            }
            Ok(Value::count(removed))
        },
        "zcard" => |core, call| {
            let set: Option<&SortedSet> = core.keyspace.read(&call.args[1])?;
            Ok(Value::count(set.map_or(0, SortedSet::len)))
        },
        "zscore" => |core, call| {
            let set: Option<&SortedSet> = core.keyspace.read(&call.args[1])?;
            let score = set.and_then(|set| set.score(&call.args[2]));
            Ok(score.map_or(Value::Nil, Value::Double))
        },
        "zmscore" => |core, call| {
            let set: Option<&SortedSet> = core.keyspace.read(&call.args[1])?;
            let scores = call.args[2..].iter().map(|member| {
                let score = set.and_then(|set| set.score(member));
                score.map_or(Value::Nil, Value::Double)
            });
            Ok(Value::Array(scores.collect()))
        },
        "zrank" => |core, call| {
            let set: Option<&SortedSet> = core.keyspace.read(&call.args[1])?;
            let rank = set.and_then(|set| {
                let mut members = set.iter();
                members.position(|(member, _)| *member == call.args[2])
            });
            Ok(rank.map_or(Value::Nil, Value::count))
        },
        _ => return None,
    })
}

#[derive(Debug, Default)]
struct Options {
    only_new: bool,
    only_known: bool,
    only_greater: bool,
    only_less: bool,
    counts_changed: bool,
    increments: bool,
}

fn add(core: &mut Core, call: &Call<'_>) -> Reply {
    let mut options = Options::default();
    let mut begin = 2;
    for option in &call.args[2..] {
        let flag = match () {
            () if is_word(option, "nx") => &mut options.only_new,
            () if is_word(option, "xx") => &mut options.only_known,
            () if is_word(option, "ch") => &mut options.counts_changed,
            () if is_word(option, "incr") => &mut options.increments,
            () if is_word(option, "gt") => &mut options.only_greater,
            () if is_word(option, "lt") => &mut options.only_less,
            () => break,
        };
        *flag = true;
        begin += 1;
    }
    let pairs = &call.args[begin..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Failure::syntax());
    }
    let one = [options.only_new, options.only_greater, options.only_less];
    let message = if options.only_new && options.only_known {
        "XX and NX options at the same time are not compatible"
    } else if one.into_iter().filter(|option| *option).count() > 1 {
        "GT, LT, and/or NX options at the same time are not compatible"
    } else if options.increments && pairs.len() > 2 {
        "INCR option supports a single increment-element pair"
    } else {
        return change(core, call, &options, pairs);
    };
    Err(Failure::general(message))
}

fn change(core: &mut Core, call: &Call<'_>, options: &Options, pairs: &[Vec<u8>]) -> Reply {
    let mut scores = Vec::new();
    for pair in pairs.chunks(2) {
        let score = float(&pair[0]);
        scores.push(score.ok_or_else(|| Failure::general("value is not a valid float"))?);
    }
    let key = &call.args[1];
    let is_known = core.keyspace.read::<SortedSet>(key)?.is_some();
    let (mut added, mut updated, mut last) = (0, 0, None);
    if is_known || !options.only_known {
        let set: &mut SortedSet = core.keyspace.create(key)?;
        for (mut score, pair) in scores.into_iter().zip(pairs.chunks(2)) {
            let member = &pair[1];
            let before = set.score(member);
            if let Some(before) = before {
                if options.increments && !options.only_new {
                    score += before;
                    if score.is_nan() {
                        return Err(Failure::general("resulting score is not a number (NaN)"));
                    }
                }
                let is_refused = options.only_new
                    || (options.only_less && score >= before)
                    || (options.only_greater && score <= before);
                if is_refused {
                    continue;
                }
            } else if options.only_known {
                continue;
            }
            last = Some(score);
            match before {
                None => {
                    added += 1;
                    set.insert(member, score);
                }
                #[expect(
                    clippy::float_cmp,
                    reason = "Redis asks whether it is exactly the same"
                )]
                Some(before) if before != score => {
                    updated += 1;
                    set.insert(member, score);
                }
                Some(_) => {}
            }
        }
        if added + updated > 0 {
            core.keyspace.changed(key);
        }
    }
    Ok(if options.increments {
        last.map_or(Value::Nil, Value::Double)
    } else {
        Value::count(if options.counts_changed {
            added + updated
        } else {
            added
        })
    })
}
