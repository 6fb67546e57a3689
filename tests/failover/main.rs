//! A server that forgets: it restarts, or another takes its place.

#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "how long a server is waited for shows in real time"
)]

#[path = "../support/mod.rs"]
mod support;

mod delay;
mod durability;
mod meanwhile;
mod noticed;
mod pair;
