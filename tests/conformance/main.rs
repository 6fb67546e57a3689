//! What every lock does on every engine: each case is written once and played on all of them.
//!
//! A case is an `async fn case(stage: &Stage) -> Result<(), Error>`; a module names its cases once, in
//! [`on_every_engine!`], and each becomes one test per engine. A new engine costs a line in that macro
//! and a constructor of [`Stage`](stage::Stage); a new primitive costs a module beside `plain_lock`.
//!
//! In memory time is paused, so a case that waits for a lease takes none; on a server it is real.

#![cfg(all(feature = "redis", feature = "sqlite"))]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

/// Makes one test of each case on each engine: `redis::a_case`, `memory::a_case`, `sqlite::a_case`.
///
/// The first word is how a case is run: [`play`](stage::Stage::play) if it is async,
/// [`call`](stage::Stage::call) if it blocks.
macro_rules! on_every_engine {
    ($run:ident: $($case:ident,)+) => {
        on_engine!(memory, $run: $($case,)+);
        on_engine!(redis, $run: $($case,)+);
        on_engine!(sqlite, $run: $($case,)+);
    };
}

macro_rules! on_engine {
    ($engine:ident, $run:ident: $($case:ident,)+) => {
        mod $engine {
            $(
                #[test]
                fn $case() {
                    crate::stage::Stage::$engine(stringify!($case)).$run(super::$case);
                }
            )+
        }
    };
}

#[cfg(feature = "blocking")]
mod blocking;
mod bounds;
mod plain_lock;
mod stage;
#[path = "../support/mod.rs"]
mod support;
