//! How the sources and the documentation are written: no sentence opens with a bare pronoun, and no two types share a name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Source, collect};

/// Pronouns that stand for a noun which the reader then has to guess. "What" is fine in a question.
const OPENINGS: [&str; 7] = [
    "Who", "Whoever", "Whom", "Those", "Nobody", "Somebody", "What",
];

#[test]
fn no_sentence_opens_with_a_bare_pronoun() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in ["src", "cli/src", "docs"] {
        collect(root, folder, &mut sources);
    }
    let readme = fs::read_to_string(root.join("README.md")).expect("it is there");
    let path = "README.md".to_owned();
    sources.push(Source { path, text: readme });
    let wrong: Vec<_> = sources.iter().flat_map(openings).collect();
    assert!(
        wrong.is_empty(),
        "{} sentences without a noun:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_bare_pronoun_is_found() {
    let wrong = |path: &str, text: &str| {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        openings(&source).len()
    };
    assert_eq!(wrong("a.rs", "/// Who waits is served.\nfn f() {}"), 1);
    assert_eq!(wrong("a.rs", "// A waiter. Nobody else\n// asks. Those"), 2);
    assert_eq!(wrong("a.lua", "-- What is left, in ms.\nreturn 1"), 1);
    assert_eq!(wrong("a.md", "Locks.\n\n- Somebody waits.\n"), 1);
    assert_eq!(wrong("a.md", "# What it does\n\nWho holds it?\n"), 0);
    assert_eq!(wrong("a.rs", "/// The waiter. `Who` is a type."), 0);
    assert_eq!(wrong("a.rs", "let name = \"Who waits\";"), 0);
    assert_eq!(wrong("a.md", "```\nWho knows\n```\n"), 0);
}

/// Each sentence of a file's comments, or of a document, that opens with one of [`OPENINGS`] and is no question.
fn openings(source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, paragraph) in paragraphs(source) {
        for sentence in sentences(&paragraph) {
            let first = sentence.split([' ', ',', '\'']).next().unwrap_or_default();
            if OPENINGS.contains(&first) && !sentence.ends_with('?') {
                let start: String = sentence.chars().take(70).collect();
                wrong.push(format!("{}:{line}: {start}", source.path));
            }
        }
    }
    wrong
}

/// Pieces of prose, each with the number of its first line: blocks of comments without blank lines, or paragraphs, list items and
/// table cells of a document.
fn paragraphs(source: &Source) -> Vec<(usize, String)> {
    let mark = match Path::new(&source.path)
        .extension()
        .and_then(|end| end.to_str())
    {
        Some("rs") => "//",
        Some("lua") => "--",
        Some("md") => "",
        _ => return Vec::new(),
    };
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut is_code = false;
    let mut goes_on = false;
    for (number, line) in source.text.lines().enumerate() {
        let prose = line
            .trim_start()
            .strip_prefix(mark)
            .map(|line| line.trim_start_matches(['/', '!']).trim());
        let Some(prose) = prose else {
            goes_on = false;
            continue;
        };
        if prose.starts_with("```") {
            is_code = !is_code;
        }
        let heading = prose.starts_with('#');
        if is_code || heading || prose.is_empty() || prose.starts_with("```") {
            goes_on = false;
            continue;
        }
        let item =
            prose.starts_with(['-', '*', '|']) || prose.starts_with(|c: char| c.is_ascii_digit());
        if item || !goes_on {
            let cells = prose
                .split('|')
                .map(|cell| cell.trim_start_matches(['-', '*', ' ']));
            paragraphs.extend(cells.map(|cell| (number + 1, cell.trim().to_owned())));
        } else if let Some((_, paragraph)) = paragraphs.last_mut() {
            paragraph.push(' ');
            paragraph.push_str(prose);
        }
        goes_on = true;
    }
    paragraphs
}

fn sentences(paragraph: &str) -> Vec<&str> {
    // With the blank: a full stop in `lib.rs` ends no sentence.
    let marks = [". ", "! ", "? "];
    let mut sentences = Vec::new();
    let mut rest = paragraph;
    while let Some(end) = marks.iter().filter_map(|mark| rest.find(mark)).min() {
        let (sentence, after) = rest.split_at(end + 1);
        sentences.push(sentence);
        rest = after.trim_start();
    }
    sentences.push(rest);
    sentences
}

/// The blocking twins of public types aside, and `no_tls`, which stands in for `tls` in a build without it.
#[test]
fn no_two_types_share_a_name() {
    let mut sources = Vec::new();
    collect(Path::new(env!("CARGO_MANIFEST_DIR")), "src", &mut sources);
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        if source.path.starts_with("src/blocking") || source.path.ends_with("/no_tls.rs") {
            continue;
        }
        for line in source.text.lines() {
            if let Some(name) = declared_type(line) {
                files
                    .entry(name.to_owned())
                    .or_default()
                    .push(source.path.clone());
            }
        }
    }
    assert!(files.len() > 100, "only {} types", files.len());
    let shared: Vec<_> = files
        .iter()
        .filter(|(_, files)| files.len() > 1)
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    assert!(shared.is_empty(), "shared names:\n{}", shared.join("\n"));
}

/// The name of the type that this line declares. Only declarations at the margin count: what is indented is in an `impl`, a macro, or a
/// module of tests.
fn declared_type(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let (keyword, rest) = line.split_once(' ')?;
    if !matches!(keyword, "struct" | "enum" | "trait" | "type") {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&rest[..end.unwrap_or(rest.len())])
}
