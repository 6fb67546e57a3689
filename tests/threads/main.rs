//! The cases that a simulated world cannot show: blocked runtimes, several threads, two clocks, and a real server under a long script.
//!
//! These tests wait for events, however long a busy machine takes for them.

#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "threads are blocked and real clocks are read"
)]

#[path = "../support/mod.rs"]
mod support;

mod leases;
mod stranded;
