//! A server that forgets: it restarts, or another takes its place.

#![cfg(feature = "simulation")]
#![expect(
    clippy::disallowed_methods,
    reason = "how long a server is waited for shows in virtual time"
)]

#[path = "../support/simulated/mod.rs"]
mod support;

mod delay;
mod durability;
mod meanwhile;
mod noticed;
mod pair;
