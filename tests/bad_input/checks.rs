//! The client that waits for its replies, and the check of an error's wording: for tests on a real server and on a simulated one.

#![allow(
    dead_code,
    reason = "a program that compiles this module uses a part of it"
)]

use std::time::Duration;

use distlock::{Client, Error};

use crate::support::builder;

/// Connects with long timeouts: a server on a busy machine replies late although it is not down.
pub(crate) async fn connect(url: &str) -> Client {
    let builder = builder(url).command_timeout(PATIENCE);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}

/// Checks an error's wording, whatever it is about, and returns it.
///
/// The house style: lower case, no full stop, the lock or the address in backticks; one line, since it ends up in a log.
pub(crate) fn checked_message(error: Error) -> Error {
    let text = error.to_string();
    eprintln!("{text}");
    let begins = text.chars().next().expect("it says something");
    assert!(
        begins == '`' || begins.is_lowercase(),
        "starts badly: {text}"
    );
    assert!(!text.ends_with(['.', '!', ' ']), "ends badly: {text}");
    assert!(!text.contains(['\n', '\r']), "more than one line: {text}");
    assert!(!text.contains(".)"), "a full stop inside: {text}");
    error
}

/// Checks the error as [`checked_message`] does, and that it names this lock or address first.
pub(crate) fn checked_message_of(subject: &str, error: Error) -> Error {
    let error = checked_message(error);
    let text = error.to_string();
    assert!(text.starts_with(&format!("`{subject}`")), "{text}");
    error
}

/// Upper bound for any wait on a busy machine; only a failure waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The wait limit of a waiter that is to wait in vain: even on a busy machine the reply that the lock is busy arrives sooner.
pub(crate) const IN_VAIN: Duration = Duration::from_secs(4);
