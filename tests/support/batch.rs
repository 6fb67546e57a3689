//! Calls that travelled together, taken apart again. The only place in the tests that knows how they travel.

use std::sync::LazyLock;

/// The scripts that may travel, in the order they are numbered: text, number of keys, and for each argument
/// the value that goes without saying, if it has one.
const PASSENGERS: [(&str, usize, &[Option<&str>]); 5] = [
    (
        include_str!("../../src/engine/redis/lua/mutex/acquire.lua"),
        2,
        &[None, Some("1"), Some("1"), None],
    ),
    (
        include_str!("../../src/engine/redis/lua/mutex/release.lua"),
        1,
        &[None, Some("0"), None],
    ),
    (
        include_str!("../../src/engine/redis/lua/mutex/pass.lua"),
        2,
        &[None; 5],
    ),
    (
        include_str!("../../src/engine/redis/lua/mutex/acquire.lua"),
        2,
        &[None; 4],
    ),
    (
        include_str!("../../src/engine/redis/lua/mutex/release.lua"),
        1,
        &[None; 3],
    ),
];

/// The script they travel in.
pub(crate) static BATCH: LazyLock<String> = LazyLock::new(|| {
    let head = "local KEYS, ARGV, redis, pcall, type = KEYS, ARGV, redis, pcall, type\n";
    let main = include_str!("../../src/engine/redis/lua/batch.lua");
    let functions = (1..).zip(PASSENGERS).map(|(script, (text, keys, args))| {
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
    format!("{head}local scripts = {{\n{functions}}}\n{main}")
});

static HASH: LazyLock<String> = LazyLock::new(|| hash(&BATCH));

/// Whether calls travel together in this request.
pub(crate) fn is_batch(words: &[impl AsRef<[u8]>]) -> bool {
    words.len() > 3 && [BATCH.as_bytes(), HASH.as_bytes()].contains(&words[1].as_ref())
}

/// The calls in one request: itself, or each of those that travelled in it as if it had come alone.
pub(crate) fn apart(words: Vec<String>) -> Vec<Vec<String>> {
    if !is_batch(&words) {
        return vec![words];
    }
    let all_keys: usize = words[2].parse().expect("the number of keys");
    let (mut keys, mut args) = words[3..].split_at(all_keys);
    let mut calls = Vec::new();
    while let Some((number, rest)) = args.split_first() {
        let number: usize = number.parse().expect("the number of a script");
        let (text, its_keys, its_args) = PASSENGERS[number - 1];
        let mut call = vec!["EVALSHA".to_owned(), hash(text), its_keys.to_string()];
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

fn hash(script: &str) -> String {
    ::redis::Script::new(script).get_hash().to_owned()
}
