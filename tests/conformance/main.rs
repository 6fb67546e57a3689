//! What every lock does on every engine: each case is written once and played on all of them.
//!
//! A case is an `async fn case(stage: &Stage<impl Family>) -> Result<(), Error>`; a module names its cases once, in
//! [`with_every_lock!`], and each becomes one test per kind of lock and engine. A new kind costs a line in that macro, a
//! [`Family`](stage::Family), and a module for what is its own; a new engine a line in [`on_every_engine!`] and a
//! constructor of [`Stage`](stage::Stage).
//!
//! In memory time is paused, so a case that waits for a lease takes none; on a server it is real.

#![cfg(all(feature = "redis", feature = "sqlite", feature = "tls"))]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

/// Makes one test of each async case with each kind of lock on each engine: `plain::redis::a_case`. Cases behind a `;` are
/// not for permits: no owner takes those again, and a server does not tell of each that is given back.
macro_rules! with_every_lock {
    ($($case:ident,)* $(; $($again:ident,)+)?) => {
        mod plain {
            use super::*;
            on_every_engine! { play with Plain: $($case,)* $($($again,)+)? }
        }
        mod fenced {
            use super::*;
            on_every_engine! { play with Fenced: $($case,)* $($($again,)+)? }
        }
        mod fair {
            use super::*;
            on_every_engine_with_scripts! { play with Fair: $($case,)* $($($again,)+)? }
        }
        mod write {
            use super::*;
            on_every_engine_with_scripts! { play with Write: $($case,)* $($($again,)+)? }
        }
        mod simple {
            use super::*;
            on_every_engine! { play with Simple: $($case,)* $($($again,)+)? }
        }
        with_the_only_permit! { $($case,)* }
    };
}

/// The same with a semaphore that has one permit.
macro_rules! with_the_only_permit {
    () => {};
    ($($case:ident,)+) => {
        mod semaphore {
            use super::*;
            on_every_engine_with_scripts! { play with Semaphore: $($case,)+ }
        }
    };
}

/// Makes one test of each case on each engine: `redis::a_case`, `memory::a_case`, `sqlite::a_case`.
///
/// The first word is how a case is run: [`play`](stage::Stage::play) if it is async,
/// [`call`](stage::Stage::call) if it blocks.
macro_rules! on_every_engine {
    ($run:ident with $family:ident: $($case:ident,)+) => {
        on_every_engine_with_scripts! { $run with $family: $($case,)+ }
        on_engine!(redis_without_scripts, $run, $family: $($case,)+);
    };
}

/// The same, where the store knows who waits: not without scripts.
macro_rules! on_every_engine_with_scripts {
    ($run:ident with $family:ident: $($case:ident,)+) => {
        on_engine!(memory, $run, $family: $($case,)+);
        on_engine!(redis, $run, $family: $($case,)+);
        on_engine!(sqlite, $run, $family: $($case,)+);
    };
}

macro_rules! on_engine {
    ($engine:ident, $run:ident, $family:ident: $($case:ident,)+) => {
        mod $engine {
            $(
                #[test]
                fn $case() {
                    use crate::stage::{$family, Stage};
                    Stage::<$family>::$engine(stringify!($case)).$run(super::$case);
                }
            )+
        }
    };
}

/// Makes one test of each async case over an encrypted connection: `redis_over_tls::a_case`. Encryption changes how bytes reach
/// a server and nothing above that, so a few cases of each manner of talking to it show that it works.
macro_rules! over_tls {
    ($($case:ident,)+) => {
        on_engine!(redis_over_tls, play, Plain: $($case,)+);
    };
}

#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "blocking")]
mod blocking_numbers;
#[cfg(feature = "blocking")]
mod blocking_several;
mod bounds;
#[path = "../tls/certificates.rs"]
mod certificates;
mod counting_semaphore;
mod every_lock;
mod fair_lock;
mod fenced_lock;
mod latch;
mod multi_lock;
mod rw_lock;
mod semaphore;
mod stage;
mod store;
#[path = "../support/mod.rs"]
mod support;
