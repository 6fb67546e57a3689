//! Commands that iterate over keys or their content page by page.

use crate::Value;
use crate::arguments::{integer, is_word, text};
use crate::commands::Handler;
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::glob;
use crate::keyspace::Data;

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "scan" => scan,
        "hscan" | "sscan" | "zscan" => scan_within,
        _ => return None,
    })
}

#[derive(Debug)]
struct Options<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    kind: Option<String>,
}

impl<'a> Options<'a> {
    fn parse(words: &'a [Vec<u8>], may_filter: bool) -> Result<Self, Failure> {
        let mut options = Self {
            pattern: None,
            count: 10,
            kind: None,
        };
        for pair in words.chunks(2) {
            let [option, value] = pair else {
                return Err(Failure::syntax());
            };
            if is_word(option, "count") {
                let count = usize::try_from(integer(value)?).ok();
                let count = count.filter(|&count| count > 0);
                options.count = count.ok_or_else(Failure::syntax)?;
            } else if is_word(option, "match") {
                options.pattern = Some(value);
            } else if may_filter && is_word(option, "type") {
                options.kind = Some(text(value).to_ascii_lowercase());
            } else {
                return Err(Failure::syntax());
            }
        }
        Ok(options)
    }

    fn matches(&self, name: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::selects(pattern, name))
    }
}

/// Reads a cursor as C's `strtoul` does: an empty text is 0, and a sign is no error.
fn cursor(argument: &[u8]) -> Result<u64, Failure> {
    let text = text(argument);
    if text.is_empty() {
        return Ok(0);
    }
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let cursor = digits.parse::<u64>().ok().filter(|_| is_number);
    let cursor = cursor.ok_or_else(|| Failure::general("invalid cursor"))?;
    Ok(if is_negative {
        cursor.wrapping_neg()
    } else {
        cursor
    })
}

fn scan(core: &mut Core, call: &Call<'_>) -> Reply {
    let cursor = cursor(&call.args[1])?;
    let options = Options::parse(&call.args[2..], true)?;
    let (next, mut keys) = core.keyspace.page(cursor, options.count);
    keys.retain(|key| {
        let entry = core.keyspace.get(key);
        let kind = entry.map(|entry| entry.data.type_name());
        let is_of_kind = options
            .kind
            .as_deref()
            .is_none_or(|wanted| kind == Some(wanted));
        is_of_kind && options.matches(key)
    });
    Ok(Value::Array(vec![
        Value::bulk(next.to_string()),
        Value::bulks(keys),
    ]))
}

/// Returns the content of one key in one page, as Redis does for a small value.
fn scan_within(core: &mut Core, call: &Call<'_>) -> Reply {
    cursor(&call.args[2])?;
    let wanted = match call.name {
        "hscan" => "hash",
        "sscan" => "set",
        _ => "zset",
    };
    let mut found = Vec::new();
    let entry = core.keyspace.get(&call.args[1]);
    if let Some(entry) = entry {
        if entry.data.type_name() != wanted {
            return Err(Failure::wrong_type());
        }
        let options = Options::parse(&call.args[3..], false)?;
        match &entry.data {
            Data::Hash(hash) => {
                let pairs = hash.iter().filter(|(field, _)| options.matches(field));
                found.extend(pairs.flat_map(|(field, value)| [field.clone(), value.clone()]));
            }
            Data::Set(set) => {
                found.extend(set.iter().filter(|member| options.matches(member)).cloned());
            }
            Data::SortedSet(set) => {
                let pairs = set.iter().filter(|(member, _)| options.matches(member));
                found.extend(pairs.flat_map(|(member, score)| {
                    [member.clone(), crate::value::double(score).into_bytes()]
                }));
            }
            Data::Text(_) | Data::List(_) => {}
        }
    }
    Ok(Value::Array(vec![Value::bulk("0"), Value::bulks(found)]))
}
