//! The behaviour of every lock on every engine: each case is written once and runs on all of them.
//!
//! A case is an `async fn case(stage: &Stage<impl Family>) -> Result<(), Error>`; a module names its cases once, in
//! [`with_every_lock!`], and each becomes one test per kind of lock and engine. A new kind needs a line in that macro, a
//! [`Family`](stage::Family), and a module for its own properties; a new engine needs a line in [`on_every_engine!`] and a
//! constructor of [`Stage`](stage::Stage).
//!
//! The time of the memory engine is paused, so a case that waits for a lease takes no real time. The same holds for the
//! columns `redis` and `redis_without_scripts`: there a case has a world of its own, with a simulated server and network
//! (`support/world.rs`). These columns use a real server if the environment sets `DISTLOCK_REAL_SERVERS`, or names a server,
//! an arrangement of several or the rights of a user there: `DISTLOCK_REDIS_SERVER`, `DISTLOCK_TOPOLOGY`,
//! `DISTLOCK_LEAST_PRIVILEGE`. The columns that always use a real server are `real_redis` and `real_redis_without_scripts`,
//! which run each case with one kind of lock as `sqlite` does, `redis_over_tls`, and the cases that block threads.

#![cfg(all(
    feature = "redis",
    feature = "sqlite",
    feature = "tls",
    feature = "simulation"
))]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

/// Makes one test of each async case with each kind of lock on each engine: `plain::redis::a_case`. The cases behind a `;`
/// do not apply to permits: an owner cannot acquire them again, and a server does not announce each release of one.
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

/// Makes the same tests with a semaphore that has one permit.
macro_rules! with_the_only_permit {
    () => {};
    ($($case:ident,)+) => {
        mod semaphore {
            use super::*;
            under_simulated_time_with_scripts! { Semaphore: $($case,)+ }
        }
    };
}

/// Makes one test of each case on each engine: `redis::a_case` and `memory::a_case`; `sqlite::a_case`, because time cannot
/// be simulated for a file; and `real_redis::a_case` on a real server. There the plain lock shows the behaviour that all
/// kinds share, and each other kind shows its own. `model` shows that a file decides about each kind as memory does.
///
/// The first word is how a case is run: [`play`](stage::Stage::play) if it is async, [`call`](stage::Stage::call) if it
/// blocks. Simulated time stands still while a thread blocks, and its runtime has no other thread that could advance it:
/// cases that block run on a real server only.
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

/// Makes the same tests, without the column for Redis without scripts: there the store does not know the waiters.
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

/// Makes the tests under simulated time only, for cases that another kind of lock runs on a real server and on a file, where
/// time cannot be simulated.
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

/// Makes the tests of one column: its name, and the stage of its cases.
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

/// Makes one test of each async case over an encrypted connection: `redis_over_tls::a_case`. Encryption changes how bytes
/// reach a server and nothing above that, so a few cases of each kind of communication show that it works.
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
