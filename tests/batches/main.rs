//! Calls of several callers that travel in one: each is answered, undone and finished as if it had come alone, whatever
//! becomes of the call they share.
//!
//! The sweep ([`sweep`]) sends a batch of every sort of call over the broken networks of `lost_replies`, and checks every
//! lock in it.

#![cfg(feature = "simulation")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]
#![expect(
    clippy::future_not_send,
    reason = "a simulated world runs on one thread"
)]

#[path = "../support/simulated/mod.rs"]
mod support;

#[path = "../lost_replies/rules.rs"]
mod rules;
#[path = "../lost_replies/tokens.rs"]
mod tokens;

mod answers;
mod company;
mod read_only;
mod sweep;
mod trouble;
mod woken;

use std::time::Duration;

/// Only a failure waits for it; far shorter than [`LEASE`].
const PATIENCE: Duration = Duration::from_secs(20);
/// A ghost would be seen for this long.
const LEASE: Duration = Duration::from_secs(60);
const COMMAND_TIMEOUT: Duration = Duration::from_millis(400);
