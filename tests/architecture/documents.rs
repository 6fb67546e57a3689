//! What the pages tie their promises to is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Source, collect};

/// The pages on which promises stand beside what shows them.
const PAGES: [&str; 2] = ["docs/guarantees.md", "docs/defects.md"];

/// Where tests are.
const TESTS: [&str; 5] = ["tests", "src", "cli/tests", "cli/src", "interop/src"];

/// Shorter ones are words of the API.
const SHORTEST: usize = 24;

#[test]
fn every_test_that_a_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in TESTS {
        collect(root, folder, &mut sources);
    }
    let there = names(&sources);
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).expect("the page is there");
        let named = named(&text);
        assert!(named.len() > 20, "{page}: only {} tests", named.len());
        let missing: Vec<_> = named.difference(&there).collect();
        assert!(missing.is_empty(), "{page}: {missing:#?}");
        for room in rooms(&text) {
            assert!(there.contains(room), "{page}: no tests in `{room}`");
        }
    }
}

#[test]
fn a_test_that_is_not_there_would_be_missed() {
    let text = "| shown | `watchdog` `a_test_that_nobody_has_ever_written`, `fair::of_all_that_ever_came_to_stand` |";
    let named = named(text);
    let expected = [
        "a_test_that_nobody_has_ever_written",
        "of_all_that_ever_came_to_stand",
    ];
    assert!(named.iter().eq(&expected), "{named:?}");
    assert!(rooms("| `conformance` `loss::*` |").eq(["loss"]));
    assert!(!names(&[]).contains("loss"));
}

/// Whatever in backticks has so long a name that it is a test's.
fn named(page: &str) -> BTreeSet<String> {
    let last = quoted(page).filter_map(|path| path.rsplit("::").next());
    let tests = last.filter(|name| name.len() >= SHORTEST && is_name(name));
    tests.map(str::to_owned).collect()
}

/// What stands for all tests in a module: `loss::*`.
fn rooms(page: &str) -> impl Iterator<Item = &str> {
    let all = quoted(page).filter_map(|path| path.strip_suffix("::*"));
    all.filter_map(|path| path.rsplit("::").next())
}

fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}

fn is_name(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// All functions and modules, and what macros make tests of: each of their names stands somewhere as a word.
fn names(sources: &[Source]) -> BTreeSet<String> {
    let words = sources.iter().flat_map(|source| {
        source
            .text
            .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
    });
    words.map(str::to_owned).collect()
}
