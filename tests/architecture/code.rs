//! A Rust tokenizer that is as complete as the checks need: words and punctuation without comments and literals, and the paths that they
//! form.

use std::iter::Peekable;
use std::str::Chars;

/// A word or a punctuation mark, and its line.
#[derive(Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A path as it is written, from its first segment to one of its ends.
#[derive(Debug, PartialEq)]
pub(crate) struct Written {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    /// The inline modules around the path.
    pub(crate) inside: Vec<String>,
}

/// Splits code into tokens. Comments, strings and lifetimes are left out; `::` is one token.
pub(crate) fn tokens(code: &str) -> Vec<Token> {
    let mut rest = code.chars().peekable();
    let mut line = 1;
    let mut tokens = Vec::new();
    while let Some(c) = rest.next() {
        let text = match c {
            '\n' => {
                line += 1;
                continue;
            }
            c if c.is_whitespace() => continue,
            '/' if rest.peek() == Some(&'/') => {
                while rest.next_if(|c| *c != '\n').is_some() {}
                continue;
            }
            '/' if rest.peek() == Some(&'*') => {
                line += skip_comment(&mut rest);
                continue;
            }
            '"' => {
                line += skip_string(&mut rest);
                continue;
            }
            '\'' => {
                skip_quote(&mut rest);
                continue;
            }
            ':' if rest.next_if_eq(&':').is_some() => "::".to_owned(),
            c if is_word(c) => {
                let mut word = c.to_string();
                while let Some(c) = rest.next_if(|c| is_word(*c)) {
                    word.push(c);
                }
                if matches!(&*word, "r" | "br" | "cr") && matches!(rest.peek(), Some('"' | '#')) {
                    line += skip_raw_string(&mut rest);
                    continue;
                }
                // The word is the prefix of a string or of a character.
                if matches!(&*word, "b" | "c") && matches!(rest.peek(), Some('"' | '\'')) {
                    continue;
                }
                word
            }
            c => c.to_string(),
        };
        tokens.push(Token { text, line });
    }
    tokens
}

/// Returns every path in the code, with the braces of a `use` expanded.
pub(crate) fn paths(tokens: &[Token]) -> Vec<Written> {
    let text = |at: usize| tokens.get(at).map_or("", |token| &*token.text);
    let mut paths = Vec::new();
    let mut depth = 0;
    let mut modules: Vec<(String, usize)> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match &*token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                modules.retain(|(_, outside)| *outside < depth);
            }
            "mod" if text(at + 2) == "{" => modules.push((text(at + 1).to_owned(), depth)),
            _ => {}
        }
        let begins = starts_word(&token.text) && text(at + 1) == "::";
        let goes_on = at > 0 && text(at - 1) == "::";
        if begins && !goes_on && !in_a_group(tokens, at) {
            let mut ends = Vec::new();
            follow(tokens, at, Vec::new(), &mut ends);
            let inside: Vec<_> = modules.iter().map(|(name, _)| name.clone()).collect();
            paths.extend(ends.into_iter().map(|segments| Written {
                segments,
                line: token.line,
                inside: inside.clone(),
            }));
        }
    }
    paths
}

impl Written {
    /// Returns the path from the crate's root, if the path is explicitly one within the crate.
    pub(crate) fn within_the_crate(&self, file: &[String]) -> Option<Vec<String>> {
        let mut here: Vec<String> = file.iter().chain(&self.inside).cloned().collect();
        let mut segments = self.segments.iter().peekable();
        match segments.peek()?.as_str() {
            "crate" => {
                segments.next();
                here.clear();
            }
            "self" => {
                segments.next();
            }
            "super" => {}
            _ => return None,
        }
        while segments.next_if(|segment| *segment == "super").is_some() {
            here.pop();
        }
        here.extend(segments.cloned());
        Some(here)
    }
}

/// Reads a path from its first segment and returns the position at which it ends.
fn follow(
    tokens: &[Token],
    mut at: usize,
    mut segments: Vec<String>,
    ends: &mut Vec<Vec<String>>,
) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| &*token.text);
    loop {
        match text(at) {
            "{" => {
                at += 1;
                while !matches!(text(at), "}" | "") {
                    at = follow(tokens, at, segments.clone(), ends);
                    // Skip the tokens between two branches: `as name`, a comma.
                    while !matches!(text(at), "," | "}" | "") {
                        at += 1;
                    }
                    if text(at) == "," {
                        at += 1;
                    }
                }
                return at + 1;
            }
            word => segments.push(word.to_owned()),
        }
        if text(at + 1) != "::" {
            ends.push(segments);
            return at + 1;
        }
        at += 2;
    }
}

/// Returns whether a path at this position is a branch of another path: `use a::{here::b}`.
fn in_a_group(tokens: &[Token], at: usize) -> bool {
    let mut closed = 0;
    for before in (0..at).rev() {
        match &*tokens[before].text {
            "}" => closed += 1,
            "{" if closed > 0 => closed -= 1,
            "{" => return before > 0 && tokens[before - 1].text == "::",
            ";" => return false,
            _ => {}
        }
    }
    false
}

fn starts_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Skips a comment whose first `/` has been read; comments nest. Returns its number of lines.
fn skip_comment(rest: &mut Peekable<Chars>) -> usize {
    let (mut depth, mut lines) = (0, 0);
    let mut last = '/';
    for c in rest.by_ref() {
        match (last, c) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                lines += usize::from(c == '\n');
                last = c;
                continue;
            }
        }
        if depth == 0 {
            break;
        }
        // Neither half of a comment mark may count as half of the next one.
        last = ' ';
    }
    lines
}

/// Skips a string whose opening quote has been read.
fn skip_string(rest: &mut Peekable<Chars>) -> usize {
    let mut lines = 0;
    while let Some(c) = rest.next() {
        match c {
            '"' => break,
            '\\' => lines += usize::from(rest.next() == Some('\n')),
            c => lines += usize::from(c == '\n'),
        }
    }
    lines
}

/// Skips a raw string whose `r` has been read. A raw identifier looks the same up to the `#` and is not skipped.
fn skip_raw_string(rest: &mut Peekable<Chars>) -> usize {
    let mut hashes = 0;
    while rest.next_if_eq(&'#').is_some() {
        hashes += 1;
    }
    if rest.next_if_eq(&'"').is_none() {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let (mut lines, mut seen) = (0, String::new());
    for c in rest.by_ref() {
        lines += usize::from(c == '\n');
        seen.push(c);
        if seen.ends_with(&end) {
            break;
        }
    }
    lines
}

/// Skips what follows a `'`: a character, or the mark of a lifetime, whose name is then read as a word.
fn skip_quote(rest: &mut Peekable<Chars>) {
    match rest.peek() {
        Some('\\') => {
            // The escaped character may be a quote itself.
            rest.next();
            rest.next();
            while rest.next_if(|c| *c != '\'').is_some() {}
            rest.next();
        }
        _ => {
            let mut ahead = rest.clone();
            ahead.next();
            if ahead.next() == Some('\'') {
                rest.next();
                rest.next();
            } else {
                while rest.next_if(|c| is_word(*c)).is_some() {}
            }
        }
    }
}
