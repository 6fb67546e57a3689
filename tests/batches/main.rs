//! Calls of several callers that travel in one: each is answered, undone and finished as if it had come
//! alone, whatever becomes of the call they share.
//!
//! The sweep ([`sweep`]) sends a batch of every sort of call ([`mix`]) over the broken networks of
//! `lost_replies`, and checks every lock in it ([`case`]).

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]
#![expect(
    clippy::future_not_send,
    reason = "the cases run side by side on one thread"
)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../lost_replies/rules.rs"]
mod rules;
#[path = "../lost_replies/tokens.rs"]
mod tokens;
#[path = "../lost_replies/world.rs"]
mod world;

mod acquires;
mod answers;
mod case;
mod company;
mod mix;
mod read_only;
mod stranded;
mod sweep;
mod trouble;
mod woken;

use std::time::Duration;

/// Far longer than anything takes on a busy machine, far shorter than [`LEASE`].
const PATIENCE: Duration = Duration::from_secs(20);
/// A ghost would be seen for this long.
const LEASE: Duration = Duration::from_secs(60);
const COMMAND_TIMEOUT: Duration = Duration::from_millis(400);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
