//! The documentation as a book: every link leads somewhere, every page is in the table of contents, and the page about events lists them all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{Source, collect};

#[test]
fn every_link_of_a_page_has_a_target() {
    let pages = pages();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let exists = |path: &Path| root.join(path).exists();
    let (mut count, mut dead) = (0, Vec::new());
    for (path, text) in &pages {
        for link in links(text) {
            count += 1;
            if !leads_somewhere(path, &link, &pages, exists) {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert!(
        dead.is_empty(),
        "{} dead links:\n{}",
        dead.len(),
        dead.join("\n")
    );
}

#[test]
fn a_broken_link_is_found() {
    let page = |text: &str| text.to_owned();
    let pages = BTreeMap::from([
        ("README.md".into(), page("# distlock\n\n## Which lock")),
        (
            "docs/a.md".into(),
            page("# A\n\n```sh\n# no heading\n```\n\n## `run` and\u{a0}more: why?\n"),
        ),
    ]);
    let is_alive = |from: &str, link: &str| {
        leads_somewhere(Path::new(from), link, &pages, |path| {
            path == Path::new("scripts/test")
        })
    };
    assert_eq!(
        links("[a](b.md) `[c](d)` ![e](f.svg)\n```\n[g](h)\n```\n"),
        ["b.md", "f.svg"]
    );
    for (from, link) in [
        ("README.md", "docs/a.md"),
        ("README.md", "https://example.com/"),
        ("README.md", "#which-lock"),
        ("docs/a.md", "../README.md#which-lock"),
        ("docs/a.md", "../scripts/test"),
        ("docs/a.md", "#run-andmore-why"),
    ] {
        assert!(is_alive(from, link), "{from}: {link}");
    }
    for (from, link) in [
        ("README.md", "a.md"),
        ("README.md", "../scripts/test"),
        ("README.md", "#which-store"),
        ("docs/a.md", "README.md"),
        ("docs/a.md", "#no-heading"),
    ] {
        assert!(!is_alive(from, link), "{from}: {link}");
    }
}

/// mdBook leaves out a page that the table of contents does not name.
#[test]
fn every_page_is_in_the_table_of_contents() {
    let pages = pages();
    let contents = Path::new("docs/SUMMARY.md");
    let listed: BTreeSet<_> = links(&pages[contents])
        .iter()
        .map(|link| resolved(contents, link))
        .collect();
    let missing: Vec<_> = pages
        .keys()
        .filter(|path| path.starts_with("docs") && *path != contents && !listed.contains(*path))
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn every_event_is_on_its_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    collect(root, "src", &mut sources);
    let in_code: BTreeSet<_> = sources
        .iter()
        .filter(|source| source.is_rust())
        // The macro itself emits no event.
        .flat_map(|source| {
            events(
                source
                    .text
                    .split("macro_rules! emit_in_call")
                    .next()
                    .unwrap_or_default(),
            )
        })
        .collect();
    let page = fs::read_to_string(root.join("docs/observability.md")).expect("it is there");
    let on_page: BTreeSet<_> = page.lines().filter_map(event_of_row).collect();
    assert!(in_code.len() > 20, "only {} events", in_code.len());
    let missing: Vec<_> = in_code.difference(&on_page).collect();
    assert!(
        missing.is_empty(),
        "not in docs/observability.md: {missing:#?}"
    );
    let gone: Vec<_> = on_page.difference(&in_code).collect();
    assert!(gone.is_empty(), "not in the code: {gone:#?}");
}

#[test]
fn an_event_is_read_from_the_code_and_from_the_page() {
    let event = |target: &str, level: &str, message: &str| Event {
        target: target.into(),
        level: level.into(),
        message: message.into(),
    };
    let code = "tracing::warn!(target: \"distlock::lease\", lock = ?name, \"lost\");
        emit_in_call!(events, \"distlock::acquire\", DEBUG, { lock: f(a) }, \"granted\");
        tracing::info!(\"without a target\")";
    assert_eq!(
        events(code),
        [
            event("distlock::lease", "WARN", "lost"),
            event("distlock::acquire", "DEBUG", "granted"),
            event("", "INFO", "without a target"),
        ]
    );
    let row = "| `distlock::lease` | WARN | lost | `reason` |";
    assert_eq!(
        event_of_row(row),
        Some(event("distlock::lease", "WARN", "lost"))
    );
    assert_eq!(event_of_row("| `distlock::lease` | renewals |"), None);
}

/// Every page of the project, by its path from the root.
fn pages() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources: Vec<Source> = Vec::new();
    collect(root, "docs", &mut sources);
    let pages = sources
        .into_iter()
        .map(|source| (source.path.into(), source.text));
    let mut pages: BTreeMap<PathBuf, String> = pages.collect();
    for name in [
        "README.md",
        "README.zh-CN.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ] {
        let text = fs::read_to_string(root.join(name)).expect("it is there");
        pages.insert(name.into(), text);
    }
    pages.retain(|path, _| path.extension().is_some_and(|extension| extension == "md"));
    pages
}

/// Returns the text of a page without its blocks of code and without what stands in backticks.
fn prose(text: &str) -> String {
    let mut in_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let outside = line.split('`').step_by(2);
            prose.extend(outside);
            prose.push('\n');
        }
    }
    prose
}

/// Returns where the links and pictures of a page lead.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

fn leads_somewhere(
    from: &Path,
    link: &str,
    pages: &BTreeMap<PathBuf, String>,
    exists: impl Fn(&Path) -> bool,
) -> bool {
    if link.starts_with("https://") {
        return true;
    }
    let path = resolved(from, link);
    match (pages.get(&path), link.split_once('#')) {
        (Some(page), Some((_, anchor))) => anchors(page).contains(anchor),
        (Some(_), None) => true,
        (None, _) => exists(&path),
    }
}

/// Returns the path from the root to which a link on this page leads.
fn resolved(from: &Path, link: &str) -> PathBuf {
    let path = link.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return from.to_owned();
    }
    let mut resolved = PathBuf::new();
    for component in from.with_file_name(path).components() {
        match component {
            // A path that leaves the project is the path of no file in it.
            Component::ParentDir if !resolved.pop() => return PathBuf::from("outside"),
            Component::ParentDir => {}
            component => resolved.push(component),
        }
    }
    resolved
}

/// Returns the names by which the headings of a page can be linked, as GitHub and mdBook form them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !in_code) else {
            continue;
        };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    anchors
}

#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Event {
    target: String,
    level: String,
    message: String,
}

/// Returns the events that the code emits.
fn events(code: &str) -> Vec<Event> {
    let mut events = Vec::new();
    for (at, _) in code.match_indices("!(") {
        let name = code[..at]
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next();
        let name = name.unwrap_or_default();
        let is_event = code[..at - name.len()].ends_with("tracing::");
        if !is_event && name != "emit_in_call" {
            continue;
        }
        let call = arguments(&code[at + 1..]);
        let mut literals: Vec<_> = call.split('"').skip(1).step_by(2).collect();
        let level = match name {
            "emit_in_call" => ["DEBUG", "WARN"]
                .into_iter()
                .find(|level| call.contains(level)),
            _ => None,
        };
        let target = literals
            .iter()
            .find(|literal| literal.starts_with("distlock::"));
        events.push(Event {
            target: target.map_or_else(String::new, |target| (*target).to_owned()),
            level: level.map_or_else(|| name.to_uppercase(), str::to_owned),
            message: literals.pop().unwrap_or_default().to_owned(),
        });
    }
    events
}

/// Returns the code up to the parenthesis that closes the first one. Messages contain no parentheses without a counterpart.
fn arguments(code: &str) -> &str {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &code[..at];
        }
    }
    code
}

/// Returns the event of a row of the table, if the line is one.
fn event_of_row(line: &str) -> Option<Event> {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [target, level, message, ..] = cells[..] else {
        return None;
    };
    let target = target.trim_matches('`');
    target.starts_with("distlock::").then(|| Event {
        target: target.to_owned(),
        level: level.to_owned(),
        message: message.to_owned(),
    })
}
