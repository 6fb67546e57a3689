//! Batch scripts: several requests in one script, built from the same texts that carry them out one by one.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::{Script, exclusive};
use crate::protocol::{Kind, Request};

/// A script that may be part of a batch.
pub(super) struct SubScript {
    pub(super) script: &'static LazyLock<Script>,
    pub(super) keys: usize,
    pub(super) args: Args,
}

/// For each argument the value that it always has in a batch, or `None` if the request supplies it.
pub(super) type Args = &'static [Option<&'static str>];

/// Turns what every item uses into locals, so that each name is resolved once.
const PROLOGUE: &str = "local KEYS, ARGV, redis, pcall, type = KEYS, ARGV, redis, pcall, type\n";

/// The batch script of one kind of lock, and the scripts that it may run. The number of a sub-script is its position in the
/// array, counted from 1.
struct BatchScript {
    sub_scripts: [SubScript; 5],
    script: Script,
}

// One script for each kind: a server creates all functions of a script again each time it runs.
static MUTEX: LazyLock<BatchScript> =
    LazyLock::new(|| BatchScript::new(exclusive::MUTEX.sub_scripts()));
static FENCED: LazyLock<BatchScript> =
    LazyLock::new(|| BatchScript::new(exclusive::FENCED.sub_scripts()));
static SIMPLE: LazyLock<BatchScript> =
    LazyLock::new(|| BatchScript::new(exclusive::SIMPLE.sub_scripts()));

impl BatchScript {
    /// Builds a script of the sub-scripts as functions, and of the loop that calls them. The offsets of keys and arguments are
    /// written into the text: tables of its own for each item would cost the server more than batches save.
    fn new(sub_scripts: [SubScript; 5]) -> Self {
        let mut text = String::from(PROLOGUE);
        text += "local scripts = {\n";
        for (index, sub_script) in sub_scripts.iter().enumerate() {
            let mut body = sub_script.script.as_written().replace("KEYS[", "KEYS[k + ");
            let mut args = 0;
            for (number, value) in (1..).zip(sub_script.args) {
                let here = match value {
                    Some(value) => format!("'{value}'"),
                    None => {
                        args += 1;
                        format!("ARGV[a + {args}]")
                    }
                };
                body = body.replace(&format!("ARGV[{number}]"), &here);
            }
            let (number, keys) = (index + 1, sub_script.keys);
            text += &format!("['{number}'] = {{function(k, a)\n{body}\nend, {keys}, {args}}},\n");
        }
        text += "}\n";
        text += include_str!("../lua/batch.lua");
        let script = Script::new(Cow::Owned(text));
        Self {
            sub_scripts,
            script,
        }
    }
}

fn batch(kind: Kind) -> Option<&'static BatchScript> {
    match kind {
        Kind::Mutex => Some(&MUTEX),
        Kind::Fenced => Some(&FENCED),
        // Requests of these kinds are sent alone: a request for a fair lock must not be overtaken on the way.
        Kind::Fair | Kind::Read | Kind::Write => None,
        Kind::Semaphore | Kind::Counting | Kind::Latch => None,
        Kind::Simple => Some(&SIMPLE),
    }
}

pub(super) fn script(kind: Kind) -> Option<&'static Script> {
    batch(kind).map(|batch| &batch.script)
}

/// Returns the number of the request's sub-script and the arguments that are omitted, or `None` if the request has to be sent
/// alone.
pub(super) fn sub_script(request: &Request) -> Option<(usize, Args)> {
    let sub_scripts = &batch(request.subject.kind)?.sub_scripts;
    let index = exclusive::sub_script(&request.action)?;
    Some((index + 1, sub_scripts[index].args))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the numbers in all uses of `KEYS[1]` or `ARGV[1]`.
    fn numbers(text: &str, table: &str) -> BTreeSet<usize> {
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let code: String = code.collect();
        let uses = code.split(table).skip(1);
        uses.map(|suffix| {
            let number = suffix
                .strip_prefix('[')
                .and_then(|rest| rest.split(']').next());
            let number = number.and_then(|number| number.parse().ok());
            number.unwrap_or_else(|| panic!("`{table}` is not followed by a number: {text}"))
        })
        .collect()
    }

    #[test]
    fn sub_scripts_use_exactly_their_declared_keys_and_arguments() {
        let batches = Kind::ALL.into_iter().filter_map(batch);
        for SubScript { script, keys, args } in batches.flat_map(|batch| &batch.sub_scripts) {
            let text = script.as_written();
            assert_eq!(numbers(text, "KEYS"), (1..=*keys).collect(), "{text}");
            assert_eq!(numbers(text, "ARGV"), (1..=args.len()).collect(), "{text}");
        }
    }
}
