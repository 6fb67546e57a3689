//! The checks of the architecture. Each check returns its violations, one line for each.

use std::collections::HashSet;

use super::Source;
use super::code::{Token, paths, tokens};

/// Checks the order faces → driver → engine → simulation (in tests) → protocol: a layer may name itself and those below it, nothing above.
pub(crate) fn imports_point_down(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in rust(sources) {
        let module = source.module();
        let Some(layer) = LAYERS.iter().position(|layer| *layer == source.layer()) else {
            continue;
        };
        let below = &LAYERS[layer..];
        for path in paths(&tokens(&source.text)) {
            let Some(target) = path.within_the_crate(&module) else {
                continue;
            };
            if !target
                .first()
                .is_some_and(|first| below.contains(&&**first))
            {
                let target = target.join("::");
                wrong.push(format!(
                    "{}:{} names crate::{target}",
                    source.path, path.line
                ));
            }
        }
    }
    wrong
}

/// Checks that the protocol uses no clock, no socket and no runtime: only `std`, itself and the crates for serialized values, and of `std`
/// nothing that does input or output.
pub(crate) fn the_protocol_is_pure(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in rust(sources).filter(|source| source.path.starts_with("src/protocol/")) {
        let tokens = tokens(&source.text);
        let mut say = |line, what: &str| wrong.push(format!("{}:{line} {what}", source.path));
        for token in &tokens {
            if IMPURE_WORDS.contains(&&*token.text) {
                say(token.line, &format!("has `{}` in it", token.text));
            }
        }
        let paths = paths(&tokens);
        // A path may also begin with any name that the file imports or declares.
        let mut known: HashSet<&str> = NO_CRATES.into();
        known.extend(WRITTEN);
        known.extend(
            paths
                .iter()
                .filter_map(|path| path.segments.last())
                .map(|last| &**last),
        );
        known.extend(declared(&tokens, "mod"));
        for path in &paths {
            let first = &*path.segments[0];
            if first == "std" {
                let part = path.segments.get(1).map_or("", |part| part);
                if IMPURE_PARTS.contains(&part) {
                    say(path.line, &format!("reaches for std::{part}"));
                }
            } else if first.starts_with(char::is_lowercase) && !known.contains(first) {
                say(path.line, &format!("names `{}`", path.segments.join("::")));
            }
        }
    }
    wrong
}

/// Checks that `blocking` uses what users use: the names that `lib.rs` exports, and of those only public items. Its thread is the
/// exception: it belongs to the driver, which keeps the application's code off its threads.
pub(crate) fn blocking_is_public(sources: &[Source]) -> Vec<String> {
    let mut public: HashSet<String> = HashSet::from(["blocking".to_owned()]);
    for source in sources.iter().filter(|source| source.path == "src/lib.rs") {
        let tokens = tokens(&source.text);
        let exports = paths(&tokens)
            .into_iter()
            .filter(|path| path.inside.is_empty());
        public.extend(exports.filter_map(|path| path.segments.last().cloned()));
    }
    let is_blocking = |source: &&Source| source.path.starts_with("src/blocking");
    // A name that is public somewhere may refer to the public item; a name that is only ever internal cannot. Only the faces matter:
    // nothing below them is reachable from the public API.
    let mut open = HashSet::new();
    let mut internal = HashSet::new();
    for source in rust(sources).filter(|source| !LAYERS.contains(&source.layer())) {
        for (name, visibility) in functions(&tokens(&source.text)) {
            if visibility == Visibility::Crate && !is_blocking(&source) {
                internal.insert(name);
            } else {
                open.insert(name);
            }
        }
    }
    let mut wrong = Vec::new();
    for source in rust(sources).filter(is_blocking) {
        let tokens = tokens(&source.text);
        for path in paths(&tokens) {
            let Some(target) = path.within_the_crate(&source.module()) else {
                continue;
            };
            let is_thread = target.len() > 1 && target[..2] == ["driver", "thread"];
            if !is_thread && !target.first().is_some_and(|first| public.contains(first)) {
                let target = target.join("::");
                wrong.push(format!(
                    "{}:{} names crate::{target}",
                    source.path, path.line
                ));
            }
        }
        for call in tokens.windows(3).filter(|call| call[2].text == "(") {
            let name = &call[1].text;
            let called = matches!(&*call[0].text, "." | "::");
            if called && internal.contains(name) && !open.contains(name) {
                let line = call[1].line;
                wrong.push(format!(
                    "{}:{line} calls the internal `{name}`",
                    source.path
                ));
            }
        }
    }
    wrong
}

/// Checks that each script has a header that explains its numbered values: its keys, its arguments if it has any, and what it returns.
pub(crate) fn scripts_are_headed(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.is_script()) {
        let (head, body): (Vec<&str>, Vec<&str>) = {
            let mut lines = source.text.lines();
            let head = lines.by_ref().map_while(|line| line.strip_prefix("--"));
            let head: Vec<&str> = head.collect();
            (
                head,
                source
                    .text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("--"))
                    .collect(),
            )
        };
        let says = |what: &str| head.iter().any(|line| line.trim_start().starts_with(what));
        let uses = |what: &str| body.iter().any(|line| line.contains(what));
        for (what, wanted) in [("KEYS", true), ("ARGV", uses("ARGV")), ("Returns", true)] {
            if wanted && !says(what) {
                wrong.push(format!("{} does not say its {what}", source.path));
            }
        }
    }
    wrong
}

#[derive(PartialEq)]
enum Visibility {
    Crate,
    Public,
}

/// Returns the functions that are visible beyond their module: `pub`, `pub(crate)` or a narrower visibility.
fn functions(tokens: &[Token]) -> Vec<(String, Visibility)> {
    let mut functions = Vec::new();
    let text = |at: usize| tokens.get(at).map_or("", |token| &*token.text);
    for at in (0..tokens.len()).filter(|at| text(*at) == "pub") {
        let mut next = at + 1;
        let mut visibility = Visibility::Public;
        if text(next) == "(" {
            visibility = Visibility::Crate;
            while !matches!(text(next), ")" | "") {
                next += 1;
            }
            next += 1;
        }
        while matches!(text(next), "const" | "async" | "extern") {
            next += 1;
        }
        if text(next) == "fn" {
            functions.push((text(next + 1).to_owned(), visibility));
        }
    }
    functions
}

/// Returns the names that follow a keyword.
fn declared<'a>(tokens: &'a [Token], keyword: &str) -> impl Iterator<Item = &'a str> {
    let named = tokens
        .windows(2)
        .filter(move |pair| pair[0].text == keyword);
    named.map(|pair| &*pair[1].text)
}

fn rust(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| source.is_rust())
}

/// The layers beneath the faces, from the top. Every layer may have planted bugs, in a build of their own.
const LAYERS: [&str; 5] = ["driver", "engine", "simulation", "protocol", "planted"];
/// The crates for serialized values.
const WRITTEN: [&str; 2] = ["serde", "uuid"];
const IMPURE_WORDS: [&str; 5] = ["Instant", "SystemTime", "async", "await", "thread_local"];
const IMPURE_PARTS: [&str; 8] = ["env", "fs", "io", "net", "os", "process", "task", "thread"];
/// Lower-case words that a path may begin with although they are not crates.
const NO_CRATES: [&str; 23] = [
    "alloc", "bool", "char", "clippy", "core", "crate", "f32", "f64", "i16", "i32", "i64", "i8",
    "isize", "self", "std", "str", "super", "u128", "u16", "u32", "u64", "u8", "usize",
];
