//! Tests of the real binary, as a shell would use it.
//!
//! Behaviour that could differ by store is tested on every store: `fn case(stage: &Stage)`, named once in
//! [`on_every_store!`]. A missing server fails; nothing is skipped.
#![expect(
    clippy::disallowed_methods,
    reason = "processes are awaited in real time"
)]

/// Makes one test of each case on each store: `redis::a_case`, `sqlite::a_case`.
macro_rules! on_every_store {
    ($($case:ident,)+) => {
        on_store!(redis: $($case,)+);
        on_store!(sqlite: $($case,)+);
    };
}

macro_rules! on_store {
    ($store:ident: $($case:ident,)+) => {
        mod $store {
            $(
                #[test]
                fn $case() {
                    super::$case(&crate::stage::Stage::$store());
                }
            )+
        }
    };
}

mod busy;
#[path = "../../../tests/tls/certificates.rs"]
mod certificates;
mod counter;
mod doctor;
mod documents;
mod embedded;
mod encrypted;
mod exits;
mod failover;
mod fenced;
mod help;
mod killed;
mod kinds;
mod latch;
mod leases;
mod lookups;
mod lost;
mod nested;
mod permits;
mod several;
mod signals;
mod simple;
mod stage;
mod streams;
#[path = "../../../tests/support/mod.rs"]
mod support;
mod terminal;
mod usage;
