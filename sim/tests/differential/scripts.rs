//! Every script of the library, composed as the library composes it, and the kinds of arguments that each takes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A script with the kinds of its keys and arguments.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) text: String,
    /// One letter for each key and each argument, see `Generator::key` and `Generator::argument`.
    pub(crate) keys: &'static str,
    pub(crate) arguments: &'static str,
    /// Whether the script takes any number of these keys and arguments.
    pub(crate) repeats: bool,
    /// For a batch, the letters of each script in it.
    pub(crate) passengers: Vec<(&'static str, &'static str)>,
}

/// The files before each script, its keys and its arguments. `*` repeats.
const SCRIPTS: [(&str, &str, &str, &str); 41] = [
    ("format/owner format/lock", "mutex/acquire", "lu", "oanL"),
    ("format/owner format/lock", "mutex/force_release", "l", "c"),
    ("", "mutex/transfer", "lu", "oOLnc"),
    ("", "mutex/release", "l", "onc"),
    ("", "mutex/renew", "l*", "oL"),
    ("", "mutex/undo", "lu", "oanmc"),
    ("format/simple", "simple/acquire", "su", "oaL"),
    ("format/owner", "simple/force_release", "s", "c"),
    ("", "simple/transfer", "su", "oOLnc"),
    ("", "simple/release", "s", "onc"),
    ("", "simple/renew", "s*", "oL"),
    ("", "simple/undo", "su", "oamc"),
    (
        "format/owner format/lock fenced/token",
        "fenced/acquire",
        "lut",
        "oanLk",
    ),
    ("fenced/token", "fenced/transfer", "lut", "oOLnck"),
    (
        "format/alias format/owner format/lock format/queue fair/queue",
        "fair/acquire",
        "luqTA",
        "oanLwx",
    ),
    (
        "format/owner format/queue fair/queue",
        "fair/release",
        "lqTA",
        "onc",
    ),
    (
        "format/owner format/lock format/queue fair/queue",
        "fair/force_release",
        "lqTA",
        "c",
    ),
    (
        "format/owner format/queue fair/queue",
        "fair/undo",
        "luqTA",
        "oanmc",
    ),
    (RW, "rw/read", "ruW", "oanLbvgx"),
    (RW, "rw/release_read", "r", "oncb"),
    (RW, "rw/renew_read", "r*", "oLb"),
    (RW, "rw/undo_read", "ru", "oanmcb"),
    (RW, "rw/write", "ruW", "VanLbowx"),
    (RW, "rw/release_write", "rW", "Vncb"),
    (RW, "rw/renew_write", "r*", "VL"),
    (RW, "rw/undo_write", "ruW", "Vanmcb"),
    (RW, "rw/force_release", "r", "cb"),
    (SEMAPHORE, "semaphore/acquire", "POuNBC", "oapnLwchx"),
    (SEMAPHORE, "semaphore/count", "POC", "zncx"),
    (SEMAPHORE, "semaphore/force_release", "POC", "cx"),
    (SEMAPHORE, "semaphore/read", "POC", ""),
    (SEMAPHORE, "semaphore/release", "PONBC", "onpcnx"),
    (SEMAPHORE, "semaphore/renew", "POC*", "opnLcx"),
    (SEMAPHORE, "semaphore/undo", "POuNBC", "oapmcnx"),
    (NUMBER, "latch/alter", "nd", "iemcyn"),
    (NUMBER, "number/read", "n", ""),
    (NUMBER, "number/undo", "nd", "imc"),
    (
        "format/number number/dedup format/alias",
        "counting/alter",
        "nd",
        "iemcYnx",
    ),
    (
        "format/number number/dedup semaphore/queue",
        "counting/release",
        "ndNB",
        "ij0c",
    ),
    (
        "format/number number/dedup format/alias semaphore/queue",
        "counting/take",
        "ndNB",
        "iemcjnwx",
    ),
    ("", "promoted", "R", "fm"),
];

const RW: &str = "format/alias format/owner format/read_write rw/holds";
const SEMAPHORE: &str =
    "format/alias format/number format/permits semaphore/queue semaphore/permits";
const NUMBER: &str = "format/number number/dedup";
const INSPECT: &str = "format/owner format/lock format/read_write format/number format/permits";

/// For each kind of lock with batches: the positions of its five scripts, the number of keys of each, and the arguments that a batch leaves
/// out.
const BATCHES: [(&str, [BatchScript; 5]); 3] = [
    (
        "mutex",
        [
            ("acquire", "lu", "o11L"),
            ("release", "l", "o0c"),
            ("transfer", "lu", "oOLnc"),
            ("acquire", "lu", "oanL"),
            ("release", "l", "onc"),
        ],
    ),
    (
        "simple",
        [
            ("acquire", "su", "o1L"),
            ("release", "s", "o0c"),
            ("transfer", "su", "oOLnc"),
            ("acquire", "su", "oaL"),
            ("release", "s", "onc"),
        ],
    ),
    (
        "fenced",
        [
            ("acquire", "lut", "o11Lk"),
            ("release", "l", "o0c"),
            ("transfer", "lut", "oOLnck"),
            ("acquire", "lut", "oanLk"),
            ("release", "l", "onc"),
        ],
    ),
];

/// A script in a batch, its keys and its arguments.
type BatchScript = (&'static str, &'static str, &'static str);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/engine/redis/lua")
}

fn text(file: &str) -> String {
    let path = folder().join(file).with_extension("lua");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn composed(before: &str, file: &str) -> String {
    let files = before.split_whitespace().chain([file]);
    files.map(text).collect()
}

/// Returns every script in every form, and panics if there is a file that none of them has.
pub(crate) fn all() -> Vec<Script> {
    let mut scripts = Vec::new();
    for (before, file, keys, arguments) in SCRIPTS {
        scripts.push(Script {
            name: file.to_owned(),
            text: composed(before, file),
            keys: keys.trim_end_matches('*'),
            arguments,
            repeats: keys.ends_with('*'),
            passengers: Vec::new(),
        });
    }
    scripts.push(Script {
        name: "inspect".to_owned(),
        text: composed(INSPECT, "inspect"),
        keys: "?",
        arguments: "b",
        repeats: false,
        passengers: Vec::new(),
    });
    for (kind, passengers) in BATCHES {
        scripts.push(batch(kind, &passengers, &scripts));
    }
    let mut forms = Vec::new();
    for script in &scripts {
        if script.text.contains("'PUBLISH'") {
            forms.push(Script {
                name: format!("{} sharded", script.name),
                text: script.text.replace("'PUBLISH'", "'SPUBLISH'"),
                ..script.clone()
            });
        }
        forms.push(Script {
            name: format!("{} both", script.name),
            text: format!("{}{}", text("both"), script.text),
            ..script.clone()
        });
    }
    scripts.extend(forms);
    assert_all_files_are_used();
    scripts
}

/// Composes a batch as `batch.rs` of the library does.
fn batch(kind: &str, passengers: &[BatchScript], scripts: &[Script]) -> Script {
    let mut batch = String::from(
        "local KEYS, ARGV, redis, pcall, type = KEYS, ARGV, redis, pcall, type\nlocal scripts = {\n",
    );
    for (place, (script, keys, arguments)) in (1..).zip(passengers) {
        let name = format!("{kind}/{script}");
        // The release of a fenced lock is that of a plain one.
        let known = scripts.iter().find(|script| script.name == name);
        let known = known.or_else(|| {
            scripts
                .iter()
                .find(|known| known.name == format!("mutex/{script}"))
        });
        let mut body = known
            .expect("it is listed")
            .text
            .replace("KEYS[", "KEYS[k + ");
        let mut count = 0;
        for (number, letter) in (1..).zip(arguments.chars()) {
            let here = if letter.is_ascii_digit() {
                format!("'{letter}'")
            } else {
                count += 1;
                format!("ARGV[a + {count}]")
            };
            body = body.replace(&format!("ARGV[{number}]"), &here);
        }
        batch += &format!(
            "['{place}'] = {{function(k, a)\n{body}\nend, {}, {count}}},\n",
            keys.len()
        );
    }
    batch += "}\n";
    batch += &text("batch");
    Script {
        name: format!("{kind} batch"),
        text: batch,
        keys: "",
        arguments: "",
        repeats: false,
        passengers: passengers
            .iter()
            .map(|(_, keys, arguments)| (*keys, *arguments))
            .collect(),
    }
}

fn assert_all_files_are_used() {
    let mut used: BTreeSet<String> = SCRIPTS
        .iter()
        .flat_map(|(before, file, ..)| before.split_whitespace().chain([*file]))
        .map(str::to_owned)
        .collect();
    used.extend(["inspect", "both", "batch"].map(str::to_owned));
    let mut found = BTreeSet::new();
    let mut folders = vec![folder()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("the scripts are there") {
            let path = entry.expect("the scripts are there").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let path = path
                .strip_prefix(folder())
                .expect("it is below")
                .with_extension("");
            found.insert(path.display().to_string());
        }
    }
    assert_eq!(found, used, "each of the library's scripts is played");
}
