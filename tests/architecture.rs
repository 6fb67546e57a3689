//! The architecture tests: they read the sources and fail on an import that points up, and on other rules that neither the compiler nor
//! clippy checks.
//!
//! The checks are in `architecture/checks.rs`. The invented sources in `architecture/made_up.rs` show that each check can fail.

// Included by path: a module file directly under `tests/` would be a test target of its own.
#[path = "architecture/book.rs"]
mod book;
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

/// A source file of this project.
struct Source {
    /// The path from the root of the project, such as `src/driver/mod.rs`.
    path: String,
    text: String,
}

/// A check: its name, and the function that returns the violations.
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

/// One test rather than four, so that all violations are printed at once.
#[test]
fn the_sources_follow_the_architecture() {
    let sources = sources();
    // An empty list of sources has no violations: the layers must have been found.
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

    /// Returns the first part of the path: `driver`, or for a face its own name.
    fn layer(&self) -> &str {
        let path = self.path.trim_start_matches("src/");
        path.split(['/', '.']).next().unwrap_or_default()
    }

    /// Returns the path of the module in this file from the crate's root: `["driver", "waiters"]`.
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
            // Files that are not text may be data files.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                sources.push(Source { path, text });
            }
        }
    }
}
