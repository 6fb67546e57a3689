//! Invented sources that break each rule, and some that only appear to break one.

use super::code::{paths, tokens};
use super::{CHECKS, Source};

fn source(path: &str, text: &str) -> Source {
    Source {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

/// Returns the violations that all checks find together.
fn found(sources: &[Source]) -> Vec<String> {
    let found = CHECKS.iter().flat_map(|(_, check)| check(sources));
    found.collect()
}

/// Returns a small crate without violations, and one more file.
fn with(path: &str, text: &str) -> Vec<Source> {
    vec![
        source(
            "src/lib.rs",
            "//! A crate.\npub mod blocking;\npub use client::{Client, Pause};\n",
        ),
        source(
            "src/client.rs",
            "//! A face.\nuse crate::driver::Core;\npub(crate) fn peek() {}\npub fn open() {}\n",
        ),
        source(
            "src/engine/redis/lua/ask.lua",
            "-- Asks.\n--\n-- KEYS  1 the lock\n-- Returns  1\nreturn 1\n",
        ),
        source(path, text),
    ]
}

/// Files of one line without violations, each with its line; some only appear to have one.
const FINE: &str = r##"
src/protocol/lease.rs | use super::{Moment, a}; use std::time::Duration;
src/protocol/mod.rs | pub mod moment; pub use moment::Moment;
src/protocol/a.rs | use std::mem; fn f() { mem::take(&mut u64::from(1u8)); }
src/engine/mod.rs | use tokio::sync::Notify; use crate::protocol::Reply;
src/engine/memory.rs | mod tests { use super::*; use super::super::Subscriber; }
src/driver/hold.rs | use super::Core; use crate::{engine::Subscriber, protocol};
src/blocking.rs | use crate::{Client, Pause}; fn f(c: Client) { c.open() }
src/blocking/worker.rs | use super::Lock; use crate::Client;
src/protocol/lease.rs | //! See crate::driver, tokio::spawn, async.
src/protocol/lease.rs | /* crate::client::Client /* nested tokio::spawn */ async */
src/protocol/lease.rs | const A: &str = "crate::driver::Core async \" tokio::spawn";
src/protocol/lease.rs | const A: &str = r#"async " crate::driver"#; const B: char = '"';
src/protocol/lease.rs | struct A<'async_>(&'async_ str); const Q: char = '\'';
src/protocol/lease.rs | fn instant(asynchronous: u8) {}"##;

#[test]
fn a_small_crate_with_nothing_wrong_passes() {
    for row in FINE.lines().skip(1) {
        let (path, code) = row.split_once(" | ").expect(row);
        let nothing: [&str; 0] = [];
        assert_eq!(found(&with(path, code)), nothing, "{row}");
    }
}

/// Files of one line, each with its line and the violation that is found.
const BROKEN: &str = "
src/protocol/lease.rs | use crate::driver::Core; | names crate::driver::Core
src/protocol/lease.rs | use crate::engine::Subscriber; | names crate::engine::Subscriber
src/protocol/lease.rs | use super::super::engine::Subscriber; | names crate::engine::Subscriber
src/protocol/lease.rs | use crate::Error; | names crate::Error
src/protocol/mod.rs | pub use super::client::Client; | names crate::client::Client
src/protocol/a/tests.rs | mod b { use super::super::super::super::lock; } | crate::lock
src/engine/mod.rs | use crate::{protocol::Reply, driver}; | names crate::driver
src/engine/redis/mod.rs | fn f() -> crate::error::Error {} | crate::error::Error
src/driver/hold.rs | use crate::{engine::{Subscriber, Topic}, guard::Guard}; | crate::guard::Guard
src/driver/mod.rs | fn f() { crate::options::check(1) } | crate::options::check
src/driver/mod.rs | use super::connect; | names crate::connect
src/protocol/lease.rs | use tokio::time::Duration; | names `tokio::time::Duration`
src/protocol/lease.rs | fn f() { tracing::debug!(1); } | names `tracing::debug`
src/protocol/lease.rs | pub async fn f() {} | has `async` in it
src/protocol/lease.rs | fn f() { std::time::Instant::now(); } | has `Instant` in it
src/protocol/lease.rs | use std::time::SystemTime; | has `SystemTime` in it
src/protocol/lease.rs | use std::{fmt, thread}; | reaches for std::thread
src/protocol/lease.rs | use std::net::TcpStream; | reaches for std::net
src/blocking.rs | use crate::driver::Core; | names crate::driver::Core
src/blocking.rs | use crate::{Client, protocol::Reply}; | names crate::protocol::Reply
src/blocking.rs | use crate::client::Client; | names crate::client::Client
src/blocking/worker.rs | use super::super::engine; | names crate::engine
src/blocking.rs | fn f(c: crate::Client) { c.peek() } | calls the internal `peek`
src/blocking.rs | fn f() { crate::Client::peek() } | calls the internal `peek`";

#[test]
fn each_rule_can_be_broken() {
    let mut rows = 0;
    for row in BROKEN.lines().skip(1) {
        let [path, code, wrong] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let found = found(&with(path, code));
        assert_eq!(found.len(), 1, "{path} with {code}: {found:?}");
        assert!(found[0].contains(wrong), "{path} with {code}: {found:?}");
        rows += 1;
    }
    assert_eq!(rows, 24);
}

#[test]
fn a_script_without_a_head_is_found() {
    let script = |text| found(&with("src/engine/redis/lua/take.lua", text));
    assert_eq!(
        script("-- Takes.\n-- KEYS  1\n-- ARGV  1\n-- Returns  1\nreturn ARGV[1]").len(),
        0
    );
    let says = "src/engine/redis/lua/take.lua does not say its ";
    assert_eq!(
        script("-- Takes.\n-- KEYS  1\n-- Returns  1\nreturn ARGV[1]"),
        [format!("{says}ARGV")]
    );
    assert_eq!(
        script("-- Takes.\n-- Returns  1\nreturn 1"),
        [format!("{says}KEYS")]
    );
    assert_eq!(
        script("-- Takes.\n-- KEYS  1\nreturn 1\n-- Returns  1"),
        [format!("{says}Returns")]
    );
    assert_eq!(script("return 1").len(), 2);
}

#[test]
fn paths_are_parsed_as_they_are_written() {
    let code =
        "use a::{b, c::{d, e as f}, g::*}; mod m { fn h() -> i::J<k::L> { super::n() } } o::p";
    let written = paths(&tokens(code));
    let shown: Vec<_> = written
        .iter()
        .map(|path| (path.inside.join("::"), path.segments.join("::")))
        .collect();
    let expected = [
        ("", "a::b"),
        ("", "a::c::d"),
        ("", "a::c::e"),
        ("", "a::g::*"),
        ("m", "i::J"),
        ("m", "k::L"),
        ("m", "super::n"),
        ("", "o::p"),
    ];
    let expected: Vec<_> = expected.map(|(m, p)| (m.to_owned(), p.to_owned())).into();
    assert_eq!(shown, expected);
}

#[test]
fn lines_are_counted_through_comments_and_strings() {
    let code = "/* 1\n2 */ a \"3\n\\\n5\" b r#\"6\n\"# c // d\n'\\n' 'x' e";
    let tokens = tokens(code);
    let shown: Vec<_> = tokens
        .iter()
        .map(|token| (&*token.text, token.line))
        .collect();
    assert_eq!(shown, [("a", 2), ("b", 4), ("c", 5), ("e", 6)]);
}
