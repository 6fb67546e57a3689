//! Requests and replies that are lost, late, doubled or cut off: afterwards the count in Redis is what
//! the guards say, and no hold is left that nobody has, not even for one lease.
//!
//! The sweep ([`sweep`]) tells small stories ([`stories`], [`tellings`], [`lines`]) over a network that does one thing wrong
//! ([`rules`]) to each request, or to each command of it where there are no scripts ([`moments`]), and checks after every
//! step ([`case`]). What a single fault in one story cannot show is in [`walks`], [`reentries`] and
//! [`corners`].

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]
#![expect(
    clippy::future_not_send,
    reason = "the cases run side by side on one thread"
)]

#[path = "../support/mod.rs"]
mod support;

mod case;
mod cases;
mod corners;
mod echoes;
mod lines;
mod listening;
mod moments;
mod numbers;
mod quorum;
mod reentries;
mod rules;
mod stories;
mod sweep;
mod tellings;
mod together;
mod tokens;
mod walks;
mod world;

use std::time::Duration;

/// Enough to keep two processors busy while most cases wait for a time-out.
const AT_ONCE: usize = 32;
/// Far longer than anything takes on a busy machine, far shorter than [`LEASE`].
const PATIENCE: Duration = Duration::from_secs(60);
/// A ghost would be seen for this long.
const LEASE: Duration = Duration::from_secs(180);
const COMMAND_TIMEOUT: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
