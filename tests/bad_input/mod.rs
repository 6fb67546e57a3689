//! Bad input gets a clear answer, and costs nothing that is held.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use crate::support;

mod addresses;
mod cost;
mod denied_permits;
mod diary;
mod eviction;
mod fair;
mod foreign_data;
mod formats;
mod further;
mod inspection;
mod least_privilege;
mod memory_limit;
mod names;
mod numbers;
mod passwords;
mod permissions;
mod read_write;
mod rounds;
mod semaphore;
mod stage;
mod times;
mod twins;
mod wrong_kind;

use std::time::Duration;

use distlock::{Client, Error};

/// A server on a busy machine is slow to answer, and not down.
async fn connect(url: &str) -> Client {
    let builder = Client::builder(url).command_timeout(PATIENCE);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}

/// Checks an error's wording, whatever it is about, and passes it on.
///
/// House style: lower case, no full stop, the lock or the address in backticks; one line, since it
/// ends up in a log.
fn well_said(error: Error) -> Error {
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

/// [`well_said`], and it names this lock or address first.
fn said_of(subject: &str, error: Error) -> Error {
    let error = well_said(error);
    let text = error.to_string();
    assert!(text.starts_with(&format!("`{subject}`")), "{text}");
    error
}

/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long somebody waits who is to wait in vain: what is busy has been said by then on a busy machine, too.
const IN_VAIN: Duration = Duration::from_secs(4);
