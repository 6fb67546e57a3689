//! A holder that is stopped inside its critical section and goes on after the lock was lost: the store refuses its write if it checks
//! tokens, and loses an update if it does not.
//!
//! The statements are those of `docs/fencing.md`. The holders are processes of their own, which begin at [`worker`].

#![cfg(all(feature = "redis", feature = "blocking"))]

#[path = "../support/mod.rs"]
mod support;

mod stock;

use std::sync::LazyLock;
use std::time::Duration;

use distlock::{Lease, blocking};

use self::stock::Stock;
use self::support::RedisServer;
use self::support::process::{self, Process, orders, say, url};

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// Short, since the other holder waits for its end, but long enough that a busy machine does not lose the lock before the process is
/// stopped.
const LEASE: Duration = Duration::from_secs(4);
/// Upper bound for any wait on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The entry of the processes that the tests start. It tests nothing by itself and is ignored, so that it is not counted as a test that
/// passed.
#[test]
#[ignore = "no test: the processes that the tests start begin here"]
fn worker() {
    if let Some(place) = process::role() {
        sell(&Stock::at(&place));
    }
}

#[test]
fn a_database_that_compares_tokens_rejects_a_late_writer() {
    let folder = tempfile::tempdir().expect("there is room");
    let place = format!("fenced sql {}/stock.db", folder.path().display());
    assert_eq!(two_sales(&place), ["refused", "sold", "9"]);
}

#[test]
fn a_database_whose_transactions_begin_with_the_token_rejects_a_late_writer() {
    let folder = tempfile::tempdir().expect("there is room");
    let place = format!("in-transactions sql {}/stock.db", folder.path().display());
    assert_eq!(two_sales(&place), ["refused", "sold", "9"]);
}

#[test]
fn a_database_that_does_not_compare_tokens_loses_an_update() {
    let folder = tempfile::tempdir().expect("there is room");
    let place = format!("unfenced sql {}/stock.db", folder.path().display());
    assert_eq!(two_sales(&place), ["sold", "sold", "9"], "of ten");
}

#[test]
fn a_redis_that_compares_tokens_rejects_a_late_writer() {
    let place = format!("fenced redis {}", SERVER.url());
    assert_eq!(two_sales(&place), ["refused", "sold", "9"]);
}

#[test]
fn a_redis_that_does_not_compare_tokens_loses_an_update() {
    let place = format!("unfenced redis {}", SERVER.url());
    assert_eq!(two_sales(&place), ["sold", "sold", "9"], "of ten");
}

/// Runs two sales, of which the first is stopped after it has read while the other completes. Returns what each reports of its sale, and
/// what is left.
fn two_sales(place: &str) -> [String; 3] {
    Stock::at(place).fill(10);
    let mut late = Process::start(place, &SERVER.url());
    assert_eq!(late.expect_line("read"), "10");
    late.stop();
    let mut other = Process::start(place, &SERVER.url());
    assert_eq!(other.expect_line("read"), "10");
    late.resume();
    late.send_line("go");
    let first = late.expect_line("");
    other.send_line("go");
    let second = other.expect_line("");
    [first, second, Stock::at(place).left().to_string()]
}

/// Acquires the lock, reads the amount, and writes one less when it is told to. It has checked its guard before it is stopped.
fn sell(stock: &Stock) {
    let orders = orders();
    let builder = distlock::Client::builder(&url());
    let builder = builder.command_timeout(PATIENCE).connect_timeout(PATIENCE);
    let client = blocking::Client::connect_with(builder).expect("the server is up");
    let lock = client.fenced_lock(stock.name());
    let lock = lock.with_lease(Lease::KeepAlive(LEASE));
    let guard = lock.acquire().expect("it will be free");
    let token = guard.token();
    let amount = stock.read(token);
    guard.check().expect("it is held, until now");
    say(&format!("read {amount}"));
    orders.recv().expect("the test says when");
    let sold = stock.write(token, amount - 1);
    say(if sold { "sold" } else { "refused" });
    // The process runs until the test ends it.
    while orders.recv().is_ok() {}
}
