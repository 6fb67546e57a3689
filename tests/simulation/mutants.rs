//! Mutations of the scripts, each of one token or one statement, and the checks that notice them: the comparison with the pure rules, and
//! the stories. `scripts/mutants` runs this once for each.

use std::fs;
use std::path::{Path, PathBuf};

use crate::model::{COMPARED, difference};

/// One mutation: the file, the position in it, and the replacement.
struct Mutation {
    file: String,
    start: usize,
    end: usize,
    to: String,
}

/// The replacements of one token.
const SWAPS: &[(&str, &[&str])] = &[
    ("==", &["~="]),
    ("~=", &["=="]),
    ("<", &["<="]),
    ("<=", &["<"]),
    (">", &[">="]),
    (">=", &[">"]),
    ("+", &["-"]),
    ("-", &["+"]),
    ("and", &["or"]),
    ("or", &["and"]),
    ("not", &[""]),
    ("true", &["false"]),
    ("false", &["true"]),
    ("math.max", &["math.min"]),
    ("math.min", &["math.max"]),
    ("'(' ..", &[""]),
    ("'0'", &["'1'"]),
    ("'1'", &["'2'"]),
];

fn scripts() -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine/redis/lua")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the scripts are there") {
            let path = entry.expect("a folder can be read").path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    files
}

/// Returns the tokens of one line, without comments: the offset of each, and its text.
fn tokens(line: &str) -> Vec<(usize, &str)> {
    let bytes = line.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    while at < bytes.len() {
        let rest = &line[at..];
        let length = if rest.starts_with("--") {
            break;
        } else if bytes[at].is_ascii_whitespace() {
            at += 1;
            continue;
        } else if rest.starts_with("'(' ..") {
            "'(' ..".len()
        } else if bytes[at] == b'\'' {
            rest[1..].find('\'').map_or(rest.len(), |end| end + 2)
        } else if is_word(bytes[at]) {
            rest.bytes().take_while(|byte| is_word(*byte)).count()
        } else if ["==", "~=", "<=", ">=", ".."]
            .iter()
            .any(|two| rest.starts_with(two))
        {
            2
        } else {
            1
        };
        tokens.push((at, &line[at..at + length]));
        at += length;
    }
    tokens
}

fn mutations() -> Vec<Mutation> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine/redis/lua");
    let mut all = Vec::new();
    for path in scripts() {
        let file = path
            .strip_prefix(&root)
            .expect("it is below")
            .with_extension("");
        let file = file.to_string_lossy().into_owned();
        // These files are not part of the comparison: they inspect locks, or send messages in a cluster.
        if matches!(&*file, "inspect" | "both" | "promoted" | "batch") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a script is text");
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            let mut add = |start: usize, end: usize, to: &str| {
                all.push(Mutation {
                    file: file.clone(),
                    start: offset + start,
                    end: offset + end,
                    to: to.to_owned(),
                });
            };
            let tokens = tokens(line);
            let code = line.trim();
            if code.starts_with("redis.call(") && code.ends_with(')') {
                let start = line.len() - line.trim_start().len();
                add(start, start + code.len(), "");
            }
            if let (Some((at, "if" | "elseif")), Some((end, "then"))) =
                (tokens.first(), tokens.last())
            {
                add(at + tokens[0].1.len(), *end, " true ");
                add(at + tokens[0].1.len(), *end, " false ");
            }
            for (place, (at, token)) in tokens.iter().enumerate() {
                let before = place.checked_sub(1).map(|before| tokens[before].1);
                let binary = before.is_some_and(|before| {
                    !["(", ",", "=", "return", "{", "[", "-"].contains(&before)
                });
                if matches!(*token, "-" | "+") && !binary {
                    continue;
                }
                let swaps = SWAPS.iter().find(|(from, _)| from == token);
                for to in swaps.map_or(&[][..], |(_, to)| to) {
                    add(*at, at + token.len(), to);
                }
                if let Ok(number) = token.parse::<u64>()
                    // The number is the index of a key or an argument.
                    && before != Some("[")
                {
                    add(*at, at + token.len(), &(number + 1).to_string());
                }
            }
            offset += line.len();
        }
    }
    all
}

/// Prints one line for each mutation, which `scripts/mutants` reads: the value of `DISTLOCK_MUTANT`, and a description.
#[test]
#[ignore = "prints what `scripts/mutants` reads, and asserts nothing"]
fn list() {
    for Mutation {
        file,
        start,
        end,
        to,
    } in mutations()
    {
        let path = format!(
            "{}/src/engine/redis/lua/{file}.lua",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = fs::read_to_string(path).expect("a script is text");
        let line = text[..start].matches('\n').count() + 1;
        let from = text[start..end].replace('\n', " ");
        eprintln!(
            "mutant\t{file}:{start}:{end}:{to}\t{file}.lua:{line}: `{}` becomes `{to}`",
            from.trim()
        );
    }
}

/// Returns the comparisons that run a file.
fn compared_by(file: &str) -> Vec<&'static str> {
    let (folder, name) = file.split_once('/').unwrap_or((file, ""));
    match (folder, name) {
        ("mutex", "renew" | "undo" | "release") => vec!["mutex", "fenced", "fair"],
        ("mutex", _) => vec!["mutex", "mixed"],
        ("format", "owner" | "lock") => vec!["mixed", "fair", "rw", "mutex"],
        ("format", "read_write") => vec!["rw"],
        ("format", "queue") => vec!["fair", "mixed"],
        ("format", "simple") => vec!["simple", "mixed"],
        ("format", "permits") => vec!["semaphore"],
        ("format", "number") => vec!["semaphore", "counting", "latch"],
        ("format", "alias") => vec!["fair", "rw", "semaphore", "counting"],
        ("number", _) => vec!["latch", "counting"],
        ("semaphore", "queue") => vec!["semaphore", "counting"],
        ("fair", _) => vec!["fair", "mixed"],
        ("fenced", _) => vec!["fenced", "mixed"],
        (folder, _) => COMPARED
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| *name == folder)
            .collect(),
    }
}

/// Returns the scenarios that run a file.
fn played_by(file: &str) -> &'static [&'static str] {
    match file.split('/').next().unwrap_or_default() {
        "mutex" => &["calm-plain", "nested", "long-leases-plain", "robbery-plain"],
        "fenced" => &["calm-fenced", "forgets-fenced"],
        "fair" => &["calm-fair", "crashes-fair", "long-leases-fair"],
        "simple" => &["calm-simple", "long-leases-simple"],
        "rw" => &[
            "readers-and-writers",
            "calm-write",
            "crashes-read",
            "long-leases-write",
        ],
        "semaphore" => &["calm-permits", "crashes-permits", "long-leases-permits"],
        "counting" | "number" => &["permit-counts", "latches", "latch"],
        "latch" => &["latches", "latch"],
        _ => &[
            "calm-plain",
            "calm-fair",
            "calm-permits",
            "readers-and-writers",
        ],
    }
}

/// Fails if the mutation that is active is noticed.
#[test]
fn survives() {
    let file = std::env::var("DISTLOCK_MUTANT").unwrap_or_default();
    let file = file.split(':').next().unwrap_or_default();
    let names: Vec<_> = match file.is_empty() {
        // Without a mutation all comparisons agree.
        true => COMPARED.iter().map(|(name, _)| *name).collect(),
        false => compared_by(file),
    };
    for (rounds, sequences) in [(1, 30), (2, 150)] {
        for name in &names {
            let (_, kinds) = COMPARED
                .iter()
                .find(|(of, _)| of == name)
                .expect("it is compared");
            for seed in 1..=rounds {
                let found = difference(*kinds, seed, sequences);
                assert!(found.is_none(), "{name}: {}", found.unwrap_or_default());
            }
        }
    }
    if file.is_empty() {
        return;
    }
    for seed in 1..=2 {
        for scenario in played_by(file) {
            let violations = crate::planted::play(scenario, seed);
            assert!(violations.is_empty(), "{scenario}: {violations:?}");
        }
    }
}
