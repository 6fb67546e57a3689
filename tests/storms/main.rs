//! Failovers one after the other, of every kind, while many processes acquire and hold the same locks: how often two of them believed in
//! one lock at once, and how soon locks are granted again.
//!
//! With acknowledgements and a delay that never happens. Without them it happens whenever a write is lost: that is the control, which shows
//! that the count can see it. Each process reports its own beliefs, by a clock that all share.
//!
//! `cargo test` plays each kind once or twice. `scripts/failover` plays the long form and prints a table.

#![cfg(all(feature = "redis", target_os = "linux"))]
#![expect(
    clippy::disallowed_methods,
    reason = "processes and servers are killed, stopped and awaited in real time"
)]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod hold_interval;
mod holder;
mod load;
mod long;
mod probe;
mod sentinel;
mod short;
mod stage;
mod storm;
mod terms;

use self::support::process::{self, orders, runtime};

/// The entry of the processes that the tests start. It tests nothing by itself and is ignored, so that it is not counted as a test that
/// passed.
#[test]
#[ignore = "no test: the processes that the tests start begin here"]
fn worker() {
    let Some(role) = process::role() else {
        return;
    };
    let orders = orders();
    let runtime = runtime();
    let (role, rest) = role.split_once(' ').expect("a role has terms");
    match role {
        load::ROLE => runtime.block_on(load::play(rest, orders)),
        holder::ROLE => runtime.block_on(holder::play(rest, orders)),
        _ => panic!("no such role: `{role}`"),
    }
}
