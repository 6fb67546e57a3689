//! The whole library under virtual time: real clients, over a simulated network, with a simulated server.
//!
//! Every scenario runs with one seed, or with as many as `scripts/simulate` is told to play. That script can also name scenarios and a
//! seed.

#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

mod basics;
mod cluster;
mod faults;
mod judge;
#[cfg(all(distlock_planted, feature = "internals"))]
#[allow(dead_code, reason = "a part of the model test is used here")]
mod model;
#[cfg(all(distlock_planted, feature = "internals"))]
mod mutants;
mod numbers;
#[cfg(distlock_planted)]
mod planted;
mod play;
mod promises;
mod run;
mod scenario;
mod sentinel;
mod setup;
mod shrink;
mod store;
mod workload;
#[path = "../support/world.rs"]
mod world;
