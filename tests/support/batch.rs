//! Calls that travelled together, taken apart again.

use std::sync::LazyLock;

/// The scripts that may travel, in the order they are numbered, with the number of keys and arguments.
const TRAVELLERS: [(&str, usize, usize); 3] = [
    (
        include_str!("../../src/engine/redis/lua/mutex/acquire.lua"),
        2,
        4,
    ),
    (
        include_str!("../../src/engine/redis/lua/mutex/release.lua"),
        1,
        3,
    ),
    (
        include_str!("../../src/engine/redis/lua/mutex/pass.lua"),
        2,
        5,
    ),
];

/// The script they travel in.
pub(crate) static BATCH: LazyLock<String> = LazyLock::new(|| {
    let functions = TRAVELLERS.map(|(text, keys, args)| {
        format!("{{function(KEYS, ARGV)\n{text}\nend, {keys}, {args}}},\n")
    });
    let main = include_str!("../../src/engine/redis/lua/batch.lua");
    format!("local scripts = {{\n{}}}\n{main}", functions.concat())
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
        let (text, its_keys, its_args) = TRAVELLERS[number - 1];
        let mut call = vec!["EVALSHA".to_owned(), hash(text), its_keys.to_string()];
        call.extend_from_slice(&keys[..its_keys]);
        call.extend_from_slice(&rest[..its_args]);
        calls.push(call);
        (keys, args) = (&keys[its_keys..], &rest[its_args..]);
    }
    assert!(keys.is_empty(), "keys without a call");
    calls
}

fn hash(script: &str) -> String {
    ::redis::Script::new(script).get_hash().to_owned()
}
