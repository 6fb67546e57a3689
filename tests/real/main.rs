//! The tests that need a real server, but no process of their own: one program, so that the fixtures are compiled and linked
//! once.
//!
//! `cargo test --all-features --test real tls::` runs one of them.

#[path = "../support/mod.rs"]
mod support;

#[path = "../attacks/mod.rs"]
mod attacks;
#[path = "../bad_input/mod.rs"]
mod bad_input;
#[path = "../foreign/mod.rs"]
mod foreign;
#[path = "../model/mod.rs"]
mod model;
#[path = "../cancellation/real.rs"]
mod real_cancellation;
#[path = "../cluster/real.rs"]
mod real_cluster;
#[path = "../sentinel/real.rs"]
mod real_sentinel;
#[path = "../redisson_wire/mod.rs"]
mod redisson_wire;
mod stories;
#[path = "../support_selftest/mod.rs"]
mod support_selftest;
#[path = "../tls/mod.rs"]
mod tls;
