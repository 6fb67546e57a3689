//! The check that the tests which the documentation names beside its promises exist, in the groups and modules that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::code::{Token, tokens};

/// The pages on which promises stand beside the tests that show them.
const PAGES: [&str; 2] = ["docs/guarantees-tests.md", "docs/defects.md"];

/// A shorter name is checked only if it follows its group, since it may be a word of the API.
const SHORTEST: usize = 26;

/// The test programs whose modules are groups.
const GROUPED: [&str; 3] = ["real", "simulated", "src"];

/// The modules of the library whose unit tests are a group. The names of other modules are words of the API.
const UNITS: [&str; 3] = ["driver", "engine", "protocol"];

#[test]
fn every_test_that_a_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = tests_of(&files(root));
    assert!(tests.len() > 1000, "only {} tests were found", tests.len());
    let mut missing = Vec::new();
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).expect("the page is there");
        let named = named(&text, &tests);
        assert!(named.len() > 20, "{page}: only {} tests", named.len());
        let absent = named.iter().filter(|named| !is_there(named, &tests));
        missing.extend(absent.map(|(group, name)| format!("{page}: `{group}` `{name}`")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_missing_test_is_reported() {
    let text = "
        // fn in_a_comment() {}
        fn no_test() {}
        #[tokio::test(start_paused = true)]
        async fn a_lock_is_lost() {}
        macro_rules! on_each { ($($case:ident,)+) => { mod memory { $(#[test] fn $case() {})+ } } }
        mod told { on_each! { soon_enough, } }";
    let files = [File {
        group: "leases".into(),
        modules: vec!["losses".into()],
        text: text.into(),
    }];
    let tests = tests_of(&files);
    let is_there = |group: &str, name: &str| is_there(&(group.into(), name.into()), &tests);
    for name in [
        "a_lock_is_lost",
        "losses::a_lock_*",
        "losses::*",
        "told::*",
        "told::*::soon_enough",
    ] {
        assert!(is_there("leases", name), "{name}");
        assert!(is_there("", name), "{name}");
        assert!(!is_there("fair", name), "{name}");
    }
    for name in [
        "in_a_comment",
        "no_test",
        "on_each",
        "fair::losses::*",
        "told::a_lock_is_lost",
    ] {
        assert!(!is_there("leases", name), "{name}");
    }
    let page = "`leases` `a_lock_is_lost`, `soon`; with text `a_name_as_long_as_that_of_a_test` | `told::*` and `held`";
    let expected = [
        ("leases", "a_lock_is_lost"),
        ("leases", "soon"),
        ("", "a_name_as_long_as_that_of_a_test"),
        ("", "told::*"),
    ];
    let named = named(page, &tests);
    let shown = named.iter().map(|(group, name)| (&**group, &**name));
    assert!(shown.eq(expected), "{named:?}");
}

/// A source file that may contain tests.
struct File {
    group: String,
    /// The path of its module, beneath the group.
    modules: Vec<String>,
    text: String,
}

/// A test, by its group and its path in the group.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Test {
    group: String,
    path: Vec<String>,
}

/// Reads every file of every test program, and of the library and the command, whose unit tests are named too.
fn files(root: &Path) -> Vec<File> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("tests")).expect("there are tests") {
        let folder = entry.expect("a folder can be read").path();
        let main = folder.join("main.rs");
        if let (true, Some(name)) = (main.exists(), folder.file_name()) {
            let program = name.to_str().expect("names are text");
            walk(&main, true, program, &[], &mut files);
        }
    }
    for (main, program) in [
        ("src/lib.rs", "src"),
        ("cli/src/main.rs", "cli"),
        ("cli/tests/command/main.rs", "command"),
    ] {
        walk(&root.join(main), true, program, &[], &mut files);
    }
    files
}

/// Reads a file and the files of its modules. The modules of a file that owns its folder are beside it; the modules of any other file are
/// in a folder of their own.
fn walk(path: &Path, owns_folder: bool, program: &str, modules: &[String], files: &mut Vec<File>) {
    let text = fs::read_to_string(path).expect("a module has a file");
    let beside = path.parent().expect("it is in a folder");
    let folder = match owns_folder {
        true => beside.to_owned(),
        false => path.with_extension(""),
    };
    let mut given: Option<PathBuf> = None;
    for line in text.lines().map(str::trim) {
        if let Some(other) = line.strip_prefix("#[path = \"") {
            given = other.split('"').next().map(|other| beside.join(other));
        }
        let name = line.strip_suffix(';').and_then(|line| {
            let (before, name) = line.split_once("mod ")?;
            (before.is_empty() || before.starts_with("pub")).then_some(name)
        });
        let Some(name) = name else { continue };
        let inner: Vec<_> = modules.iter().cloned().chain([name.to_owned()]).collect();
        let (file, dir) = (
            folder.join(format!("{name}.rs")),
            folder.join(name).join("mod.rs"),
        );
        match given.take() {
            Some(given) => walk(&given, true, program, &inner, files),
            None if file.exists() => walk(&file, false, program, &inner, files),
            None => walk(&dir, true, program, &inner, files),
        }
    }
    let (group, modules) = match modules.split_first() {
        Some((first, _)) if program == "src" && !UNITS.contains(&&**first) => ("", modules),
        Some((group, modules)) if GROUPED.contains(&program) => (&**group, modules),
        _ => (program, modules),
    };
    files.push(File {
        group: group.to_owned(),
        modules: modules.to_vec(),
        text,
    });
}

/// Returns all tests: functions with the attribute, and the functions that are listed in a call of a macro that makes tests.
fn tests_of(files: &[File]) -> BTreeSet<Test> {
    let files: Vec<_> = files
        .iter()
        .map(|file| (file, tokens(&file.text)))
        .collect();
    let macros = test_macros(&files);
    let mut tests = BTreeSet::new();
    for (file, tokens) in &files {
        let word = |at: usize| tokens.get(at).map_or("", |token| &*token.text);
        let mut inline: Vec<(String, usize)> = Vec::new();
        let (mut depth, mut is_test) = (0, false);
        let mut add = |inline: &[(String, usize)], made: Option<&str>, name: &str| {
            let inline = inline.iter().map(|(module, _)| module.clone());
            let path = file.modules.iter().cloned().chain(inline);
            let path = path.chain(made.map(str::to_owned)).chain([name.to_owned()]);
            let group = file.group.clone();
            let path = path.collect();
            tests.insert(Test { group, path });
        };
        for at in 0..tokens.len() {
            match word(at) {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    inline.retain(|(_, outside)| *outside < depth);
                    is_test = false;
                }
                "mod" if word(at + 2) == "{" => inline.push((word(at + 1).to_owned(), depth)),
                "test" if word(at - 1) == "[" || word(at - 2) == "tokio" => is_test = true,
                "fn" if is_test => {
                    is_test = false;
                    if word(at + 1) != "$" {
                        add(&inline, None, word(at + 1));
                    }
                }
                "!" => {
                    let key = (file.group.clone(), word(at - 1).to_owned());
                    let Some(made) = macros.get(&key).filter(|_| word(at + 1) != word(at)) else {
                        continue;
                    };
                    let listed = group_at(tokens, at + 1);
                    let also = made_in(listed);
                    let names = listed.iter().map(|token| &*token.text);
                    for name in names.filter(|name| name.contains('_')) {
                        add(&inline, None, name);
                        for made in made.union(&also) {
                            add(&inline, Some(made), name);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    tests
}

/// Returns the macros that make tests, by group and name, each with the modules that it makes around the tests.
fn test_macros(files: &[(&File, Vec<Token>)]) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut bodies = Vec::new();
    for (file, tokens) in files {
        let defined = tokens
            .windows(3)
            .enumerate()
            .filter(|(_, three)| three[0].text == "macro_rules" && three[1].text == "!");
        for (at, three) in defined {
            let key = (file.group.clone(), three[2].text.clone());
            bodies.push((key, group_at(tokens, at + 3)));
        }
    }
    let mut macros: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    // A macro may call another macro that is defined after it, and that one a third.
    for _ in 0..bodies.len() {
        let before = macros.clone();
        for (key, body) in &bodies {
            let has_test = body.iter().any(|token| token.text == "test");
            let calls = body.windows(2).filter(|pair| pair[1].text == "!");
            let called =
                calls.filter_map(|pair| macros.get(&(key.0.clone(), pair[0].text.clone())));
            let called: Vec<_> = called.cloned().collect();
            if has_test || !called.is_empty() {
                let made = macros.entry(key.clone()).or_default();
                made.extend(made_in(body));
                made.extend(called.into_iter().flatten());
            }
        }
        if macros == before {
            break;
        }
    }
    macros
}

/// Returns the tokens between the brackets that open here.
fn group_at(tokens: &[Token], at: usize) -> &[Token] {
    let mut depth = 0;
    for (length, token) in tokens[at.min(tokens.len())..].iter().enumerate() {
        match &*token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &tokens[at..at + length];
        }
    }
    &[]
}

/// Returns the modules that a macro makes: `mod plain`, and `on_engine!(memory: …)`, whose column is a module.
fn made_in(tokens: &[Token]) -> BTreeSet<String> {
    let is_module = |word: &str| word.starts_with(char::is_lowercase);
    let modules = tokens.windows(3).filter_map(|three| {
        let [before, word, after] = [0, 1, 2].map(|at| &*three[at].text);
        let is_made = before == "mod" || before != "$" && after == ":";
        (is_made && is_module(word)).then(|| word.to_owned())
    });
    modules.collect()
}

/// Returns the tests and modules that a page names, each with the group in front of it, if there is one.
fn named(page: &str, tests: &BTreeSet<Test>) -> Vec<(String, String)> {
    let groups = tests.iter().map(|test| &*test.group);
    let mut groups: BTreeSet<&str> = groups.chain(["cli"]).collect();
    groups.remove("");
    let mut named = Vec::new();
    let (mut group, mut follows) = ("", false);
    let parts: Vec<_> = page.split('`').collect();
    for pair in parts.chunks_exact(2) {
        let (between, quoted) = (pair[0], pair[1]);
        let is_new = |text: &str| text.contains(char::is_alphabetic);
        if ["|", "\n\n", "\n- "]
            .iter()
            .any(|end| between.contains(end))
            || between
                .split_once(';')
                .is_some_and(|(_, text)| is_new(text))
        {
            (group, follows) = ("", false);
        }
        follows &= ["", ","].contains(&between.trim());
        if groups.contains(quoted) {
            (group, follows) = (quoted, true);
            continue;
        }
        let is_path = quoted.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_:*".contains(&byte)
        });
        let is_sure = quoted.len() >= SHORTEST || quoted.ends_with("::*");
        follows = is_path && !quoted.is_empty() && (is_sure || follows);
        if follows {
            named.push((group.to_owned(), quoted.to_owned()));
        }
    }
    named
}

/// Returns whether the group has such a test, or a module with tests of that name. Without a group, all groups are searched.
fn is_there((group, name): &(String, String), tests: &BTreeSet<Test>) -> bool {
    let wanted: Vec<_> = name.split("::").collect();
    let is_module = wanted.last() == Some(&"*");
    let wanted = &wanted[..wanted.len() - usize::from(is_module)];
    tests.iter().any(|test| {
        let in_group = match &**group {
            "" => true,
            "cli" => ["cli", "command"].contains(&&*test.group),
            group => test.group == group,
        };
        // A module is named in the same way as a test.
        let mut places = test.path.windows(wanted.len()).enumerate();
        in_group
            && places.any(|(at, place)| {
                let is_last = at + wanted.len() == test.path.len();
                let fits = place
                    .iter()
                    .zip(wanted)
                    .all(|(is, wanted)| fits(is, wanted));
                fits && !(is_module && is_last) && (is_module || is_last || wanted.len() == 1)
            })
    })
}

/// Returns whether a word matches the pattern, in which a star stands for anything.
fn fits(word: &str, wanted: &str) -> bool {
    let Some((start, rest)) = wanted.split_once('*') else {
        return word == wanted;
    };
    let Some(word) = word.strip_prefix(start) else {
        return false;
    };
    rest.is_empty()
        || (0..=word.len()).any(|at| word.is_char_boundary(at) && fits(&word[at..], rest))
}
