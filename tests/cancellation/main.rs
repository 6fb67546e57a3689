//! Futures dropped at every poll: the lock is free within a second, nothing is renewed, nobody listens,
//! and no task or map entry remains.
//!
//! Every story runs with every kind of lock on a real server, with scripts and without, in a file, and in memory under
//! paused time.
//! Where there are no scripts a request is many commands, and futures are dropped between these as well ([`commands`]).

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/mod.rs"]
mod support;

mod acquiring;
mod commands;
mod giving_back;
mod numbers;
mod polls;
mod several;
mod stage;
mod storm;

use std::time::Duration;

/// Makes one test of each story with each kind of lock on each store: `plain::redis::a_story`.
macro_rules! with_every_lock {
    ($($stories:tt)*) => {
        mod plain {
            on_every_store! { Plain: $($stories)* }
        }
        mod simple {
            on_every_store! { Simple: $($stories)* }
        }
        mod fenced {
            on_every_store! { Fenced: $($stories)* }
        }
        // It needs scripts.
        mod fair {
            on_every_store_with_scripts! { Fair: $($stories)* }
        }
        mod readers {
            on_every_store_with_scripts! { Read: $($stories)* }
        }
        mod writers {
            on_every_store_with_scripts! { Write: $($stories)* }
        }
    };
}

macro_rules! on_every_store {
    ($family:ident: $($module:ident: $($story:ident)*;)*) => {
        on_every_store_with_scripts!($family: $($module: $($story)*;)*);
        on_store!(redis_without_scripts, #[tokio::test], $family: $($module: $($story)*;)*);
    };
}

macro_rules! on_every_store_with_scripts {
    ($family:ident: $($module:ident: $($story:ident)*;)*) => {
        on_store!(redis, #[tokio::test], $family: $($module: $($story)*;)*);
        on_store!(memory, #[tokio::test(start_paused = true)], $family: $($module: $($story)*;)*);
        #[cfg(feature = "sqlite")]
        on_store!(sqlite, #[tokio::test], $family: $($module: $($story)*;)*);
    };
}

macro_rules! on_store {
    ($store:ident, #[$test:meta], $family:ident: $($module:ident: $($story:ident)*;)*) => {
        mod $store {
            use crate::stage::Stage;
            use crate::support::$family;

            $($(
                #[$test]
                async fn $story() {
                    crate::$module::$story(&Stage::<$family>::$store().await).await;
                }
            )*)*
        }
    };
}

/// What needs no owner that takes again what it holds: of permits there is none.
macro_rules! with_every_lock_and_permits {
    ($($stories:tt)*) => {
        with_every_lock! { $($stories)* }
        mod permits {
            on_every_store_with_scripts! { Semaphore: $($stories)* }
        }
        mod several_permits {
            on_every_store_with_scripts! { Several: $($stories)* }
        }
    };
}

mod owners {
    with_every_lock! {
        acquiring:
            a_re_entry_leaves_the_count_as_it_was;
        giving_back:
            a_partial_release_goes_on_without_its_caller;
    }
}

with_every_lock_and_permits! {
    acquiring:
        an_acquire_of_a_free_lock_leaves_nothing_behind
        an_acquire_of_another_clients_lock_leaves_nothing_behind
        an_acquire_that_runs_out_of_time_leaves_nothing_behind
        an_acquire_in_line_leaves_nothing_behind_and_lets_the_next_one_up
        a_run_gives_the_lock_back;
    giving_back:
        a_release_goes_on_without_its_caller
        a_release_that_is_dropped_lets_the_next_one_in
        an_extension_leaves_the_lock_held
        a_close_goes_on_without_its_caller;
}

/// Within this, a lock whose future was dropped is free.
const A_SECOND: Duration = Duration::from_secs(1);
/// The same on a machine that stands still now and then, but not every time; shorter than what is found by looking takes.
const A_WHILE: Duration = Duration::from_secs(5);
/// Longer than any machine stands still; far shorter than [`LEASE`].
const SOON: Duration = Duration::from_secs(20);
/// What is left behind would be seen for this long.
const LEASE: Duration = Duration::from_secs(90);
