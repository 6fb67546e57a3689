//! What every lock does on every engine: each case is written once and played on all of them.
//!
//! A case is an `async fn case(stage: &Stage<impl Family>) -> Result<(), Error>`; a module names its cases once, in
//! [`with_every_lock!`], and each becomes one test per kind of lock and engine. A new kind costs a line in that macro, a
//! [`Family`](stage::Family), and a module for what is its own; a new engine a line in [`on_every_engine!`] and a
//! constructor of [`Stage`](stage::Stage).
//!
//! In memory time is paused, so a case that waits for a lease takes none. So it is in the columns `redis` and
//! `redis_without_scripts`: there a case has a world of its own, with a simulated server and network (`support/world.rs`). They
//! are played on a real server if `DISTLOCK_REAL_SERVERS` is set, or what names a server, an arrangement of several or the
//! rights of a user there: `DISTLOCK_REDIS_SERVER`, `DISTLOCK_TOPOLOGY`, `DISTLOCK_LEAST_PRIVILEGE`. Always on a real one are
//! `real_redis` and `real_redis_without_scripts`, which play each case with one kind of lock as `sqlite` does, `redis_over_tls`,
//! and what blocks threads.

#![cfg(all(
    feature = "redis",
    feature = "sqlite",
    feature = "tls",
    feature = "simulation"
))]
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
            under_simulated_time! { Fenced: $($case,)* $($($again,)+)? }
        }
        mod fair {
            use super::*;
            under_simulated_time_with_scripts! { Fair: $($case,)* $($($again,)+)? }
        }
        mod write {
            use super::*;
            under_simulated_time_with_scripts! { Write: $($case,)* $($($again,)+)? }
        }
        mod simple {
            use super::*;
            under_simulated_time! { Simple: $($case,)* $($($again,)+)? }
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
            under_simulated_time_with_scripts! { Semaphore: $($case,)+ }
        }
    };
}

/// Makes one test of each case on each engine: `redis::a_case`, `memory::a_case`, and where time cannot be simulated in a file,
/// `sqlite::a_case`, and on a real server, `real_redis::a_case`: what every kind of lock does is shown there with the plain one,
/// what one kind does with it. That a file decides about each kind as memory does is shown by `model`.
///
/// The first word is how a case is run: [`play`](stage::Stage::play) if it is async,
/// [`call`](stage::Stage::call) if it blocks. Simulated time stands still while a thread blocks, and the runtime that it
/// would have to pass on has no thread but that: what blocks is played on a real server only.
macro_rules! on_every_engine {
    (play with $family:ident: $($case:ident,)+) => {
        under_simulated_time! { $family: $($case,)+ }
        on_engine!(sqlite: sqlite, play, $family: $($case,)+);
        on_engine!(real_redis: real_redis, play, $family: $($case,)+);
        on_engine!(real_redis_without_scripts: real_redis_without_scripts, play, $family: $($case,)+);
    };
    (call with $family:ident: $($case:ident,)+) => {
        on_every_engine_with_scripts! { call with $family: $($case,)+ }
        on_engine!(redis_without_scripts: real_redis_without_scripts, call, $family: $($case,)+);
    };
}

/// The same, where the store knows who waits: not without scripts.
macro_rules! on_every_engine_with_scripts {
    (play with $family:ident: $($case:ident,)+) => {
        under_simulated_time_with_scripts! { $family: $($case,)+ }
        on_engine!(sqlite: sqlite, play, $family: $($case,)+);
        on_engine!(real_redis: real_redis, play, $family: $($case,)+);
    };
    (call with $family:ident: $($case:ident,)+) => {
        on_engine!(memory: memory, call, $family: $($case,)+);
        on_engine!(redis: real_redis, call, $family: $($case,)+);
        on_engine!(sqlite: sqlite, call, $family: $($case,)+);
    };
}

/// For what a real server and a file are shown with another kind of lock: time passes there as fast as it does.
macro_rules! under_simulated_time {
    ($family:ident: $($case:ident,)+) => {
        under_simulated_time_with_scripts! { $family: $($case,)+ }
        on_engine!(redis_without_scripts: redis_without_scripts, play, $family: $($case,)+);
    };
}

macro_rules! under_simulated_time_with_scripts {
    ($family:ident: $($case:ident,)+) => {
        on_engine!(memory: memory, play, $family: $($case,)+);
        on_engine!(redis: redis, play, $family: $($case,)+);
    };
}

/// The name of the column, and the stage of its cases.
macro_rules! on_engine {
    ($column:ident: $engine:ident, $run:ident, $family:ident: $($case:ident,)+) => {
        mod $column {
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
        on_engine!(redis_over_tls: redis_over_tls, play, Plain: $($case,)+);
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
#[path = "../support/world.rs"]
mod world;
