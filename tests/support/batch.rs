//! Takes a batch apart into its calls. This is the only file of the tests that knows the format of a batch.

use std::sync::LazyLock;

use super::form::Form;

/// A batch script for one kind of lock, with the scripts that it can call.
struct Batch {
    /// In the order of their numbers.
    passengers: [BatchScript; 5],
    /// The text before it is changed to one of its forms.
    text: String,
    /// The hashes of the text, one for each form.
    hashes: [String; 3],
}

/// A script that a batch can call: its text, its number of keys, and for each argument the value that it has if it is not
/// sent.
type BatchScript = (&'static str, usize, &'static [Option<&'static str>]);

static BATCHES: LazyLock<[Batch; 3]> = LazyLock::new(|| {
    let plain: [BatchScript; 5] = [
        (
            lua!("format/owner" then "format/lock" then "mutex/acquire"),
            2,
            &[None, Some("1"), Some("1"), None],
        ),
        (lua!("mutex/release"), 1, RELEASED),
        (lua!("mutex/transfer"), 2, &[None; 5]),
        (
            lua!("format/owner" then "format/lock" then "mutex/acquire"),
            2,
            &[None; 4],
        ),
        (lua!("mutex/release"), 1, &[None; 3]),
    ];
    let fenced: [BatchScript; 5] = [
        (FENCED, 3, &[None, Some("1"), Some("1"), None, None]),
        (lua!("mutex/release"), 1, RELEASED),
        (lua!("fenced/token" then "fenced/transfer"), 3, &[None; 6]),
        (FENCED, 3, &[None; 5]),
        (lua!("mutex/release"), 1, &[None; 3]),
    ];
    // The store of a simple lock does not count holds.
    let simple: [BatchScript; 5] = [
        (
            lua!("format/simple" then "simple/acquire"),
            2,
            &[None, Some("1"), None],
        ),
        (lua!("simple/release"), 1, RELEASED),
        (lua!("simple/transfer"), 2, &[None; 5]),
        (lua!("format/simple" then "simple/acquire"), 2, &[None; 3]),
        (lua!("simple/release"), 1, &[None; 3]),
    ];
    [plain, fenced, simple].map(Batch::new)
});

/// A release of the last hold.
const RELEASED: &[Option<&str>] = &[None, Some("0"), None];
const FENCED: &str =
    lua!("format/owner" then "format/lock" then "fenced/token" then "fenced/acquire");

impl Batch {
    fn new(passengers: [BatchScript; 5]) -> Self {
        let head = "local KEYS, ARGV, redis, pcall, type = KEYS, ARGV, redis, pcall, type\n";
        let main = include_str!("../../src/engine/redis/lua/batch.lua");
        let functions = (1..).zip(passengers).map(|(script, (text, keys, args))| {
            let mut body = text.replace("KEYS[", "KEYS[k + ");
            let mut sent = 0;
            for (place, value) in (1..).zip(args) {
                sent += usize::from(value.is_none());
                let found = value.map_or_else(|| format!("ARGV[a + {sent}]"), |v| format!("'{v}'"));
                body = body.replace(&format!("ARGV[{place}]"), &found);
            }
            format!("['{script}'] = {{function(k, a)\n{body}\nend, {keys}, {sent}}},\n")
        });
        let functions: String = functions.collect();
        let text = format!("{head}local scripts = {{\n{functions}}}\n{main}");
        Self {
            passengers,
            hashes: Form::ALL.map(|form| form.hash(&text)),
            text,
        }
    }

    /// Returns the batch script that a request calls, if it calls one, and its form.
    fn of(words: &[impl AsRef<[u8]>]) -> Option<(&'static Self, Form)> {
        let script = words.get(1).filter(|_| words.len() > 3)?.as_ref();
        let called = |batch: &'static Self| {
            let mut forms = batch.hashes.iter().zip(Form::ALL);
            let by_hash = forms.find(|(hash, _)| script == hash.as_bytes());
            let by_text = || (script == batch.text.as_bytes()).then_some(Form::Plain);
            let form = by_hash.map(|(_, form)| form).or_else(by_text)?;
            Some((batch, form))
        };
        BATCHES.iter().find_map(called)
    }
}

/// Returns the texts of the batch scripts, one for each kind of lock.
pub(crate) fn batches() -> impl Iterator<Item = &'static str> {
    BATCHES.iter().map(|batch| batch.text.as_str())
}

/// Returns whether a request is a batch.
pub(crate) fn is_batch(words: &[impl AsRef<[u8]>]) -> bool {
    Batch::of(words).is_some()
}

/// Returns the calls in one request: the request itself, or each call of a batch as if it had been sent alone.
pub(crate) fn apart(words: Vec<String>) -> Vec<Vec<String>> {
    let Some((batch, form)) = Batch::of(&words) else {
        return vec![words];
    };
    let all_keys: usize = words[2].parse().expect("the number of keys");
    let (mut keys, mut args) = words[3..].split_at(all_keys);
    let mut calls = Vec::new();
    while let Some((number, rest)) = args.split_first() {
        let number: usize = number.parse().expect("the number of a script");
        let (text, its_keys, its_args) = batch.passengers[number - 1];
        let mut call = vec!["EVALSHA".to_owned(), form.hash(text), its_keys.to_string()];
        call.extend_from_slice(&keys[..its_keys]);
        let mut sent = rest.iter();
        let all = its_args.iter().map(|value| match value {
            Some(value) => (*value).to_owned(),
            None => sent.next().expect("an argument").clone(),
        });
        call.extend(all);
        args = sent.as_slice();
        keys = &keys[its_keys..];
        calls.push(call);
    }
    assert!(keys.is_empty(), "keys without a call");
    calls
}
