//! Reads the sources and fails on an import that points up, and on other rules of the architecture that neither the compiler
//! nor clippy checks.
//!
//! The checks are in `architecture/checks.rs`; that each of them can fail is shown by sources made up
//! for it, in `architecture/made_up.rs`.

// By path, since modules of a file directly under `tests/` would be test targets of their own.
#[path = "architecture/checks.rs"]
mod checks;
#[path = "architecture/code.rs"]
mod code;
#[path = "architecture/dependencies.rs"]
mod dependencies;
#[path = "architecture/documents.rs"]
mod documents;
#[path = "architecture/made_up.rs"]
mod made_up;
#[path = "architecture/words.rs"]
mod words;

use std::fs;
use std::path::Path;

/// One file of ours.
struct Source {
    /// From the root of the project, as `src/driver/mod.rs`.
    path: String,
    text: String,
}

/// What the sources are held to: its name, and what is wrong with them.
type Check = (&'static str, fn(&[Source]) -> Vec<String>);

const CHECKS: [Check; 4] = [
    ("imports point down only", checks::imports_point_down),
    ("the protocol is pure", checks::the_protocol_is_pure),
    (
        "blocking is made of the public API",
        checks::blocking_is_public,
    ),
    ("every script names its keys", checks::scripts_are_headed),
];

/// One test rather than four: it prints everything that is wrong at once.
#[test]
fn the_sources_keep_to_the_architecture() {
    let sources = sources();
    // Nothing is wrong with nothing: the layers must have been found.
    for layer in [
        "src/protocol/",
        "src/engine/",
        "src/driver/",
        "src/blocking",
    ] {
        let files = sources
            .iter()
            .filter(|source| source.path.starts_with(layer));
        assert!(files.count() > 0, "no files in {layer}");
    }
    let scripts = sources.iter().filter(|source| source.is_script()).count();
    assert!(scripts > 3, "only {scripts} scripts");
    assert!(sources.len() > 20, "only {} files", sources.len());

    let mut wrong = Vec::new();
    for (rule, check) in CHECKS {
        let found = check(&sources);
        wrong.extend(found.iter().map(|what| format!("{rule}: {what}")));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    eprintln!("{} files keep to {} rules", sources.len(), CHECKS.len());
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_script(&self) -> bool {
        self.path.ends_with(".lua")
    }

    /// The first part of its path: `driver`, or for a face its own name.
    fn layer(&self) -> &str {
        let path = self.path.trim_start_matches("src/");
        path.split(['/', '.']).next().unwrap_or_default()
    }

    /// The module in this file, from the crate's root: `["driver", "waiters"]`.
    fn module(&self) -> Vec<String> {
        let path = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        let mut module: Vec<String> = path.split('/').map(str::to_owned).collect();
        if module
            .last()
            .is_some_and(|last| last == "mod" || last == "lib")
        {
            module.pop();
        }
        module
    }
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    collect(Path::new(env!("CARGO_MANIFEST_DIR")), "src", &mut sources);
    sources.sort_by(|one, two| one.path.cmp(&two.path));
    sources
}

fn collect(root: &Path, folder: &str, sources: &mut Vec<Source>) {
    let entries = fs::read_dir(root.join(folder)).expect("the sources are there");
    for entry in entries {
        let entry = entry.expect("a folder can be read");
        let name = entry.file_name().into_string().expect("names are text");
        let path = format!("{folder}/{name}");
        if entry.path().is_dir() {
            collect(root, &path, sources);
        } else {
            // There may be files of data among them.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                sources.push(Source { path, text });
            }
        }
    }
}
