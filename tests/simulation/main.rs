//! The whole library under virtual time: real clients, over a simulated network, with a simulated server.
//!
//! Every scenario runs with several seeds (`DISTLOCK_SEEDS`, three by default), or with the one that `DISTLOCK_SEED`
//! names; `scripts/simulate` sets both.

#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

mod basics;
mod contention;
mod faults;
mod judge;
mod run;
mod workload;
#[path = "../support/world.rs"]
mod world;

use std::env;

/// How many seeds each scenario runs with in the test suite.
const FEW: u64 = 3;

/// The seeds to play.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        )
    };
    match number("DISTLOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("DISTLOCK_SEEDS").unwrap_or(FEW) + 1,
    }
}
