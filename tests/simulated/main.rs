//! The guarantees of the library, on a simulated network and server under virtual time: one program, so that the fixtures
//! are compiled and linked once. The module `support` has the simulated fixtures here, by the names of the real ones.
//!
//! `cargo test --all-features --test simulated rules::` runs one of the groups.

#![cfg(feature = "simulation")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests start tasks and keep their own time"
)]
#![expect(
    clippy::future_not_send,
    reason = "a simulated world runs on one thread"
)]

#[path = "../support/simulated/mod.rs"]
mod support;

#[path = "../attacks/simulated.rs"]
mod attacks;
#[path = "../bad_input/simulated.rs"]
mod bad_input;
#[path = "../batches/mod.rs"]
mod batches;
#[path = "../cancellation/mod.rs"]
mod cancellation;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../failover/mod.rs"]
mod failover;
#[path = "../leases/mod.rs"]
mod leases;
#[path = "../lost_replies/mod.rs"]
mod lost_replies;
#[path = "../quorum/mod.rs"]
mod quorum;
#[path = "../redisson_wire/simulated.rs"]
mod redisson_wire;
#[path = "../rules/mod.rs"]
mod rules;
#[path = "../sentinel/mod.rs"]
mod sentinel;
#[path = "../shutdown/close.rs"]
mod shutdown;
#[path = "../waiting/mod.rs"]
mod waiting;
