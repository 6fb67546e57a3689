//! Futures dropped at every poll: the lock is free within a second, nothing is renewed, nobody listens,
//! and no task or map entry remains.
//!
//! Every story runs on a real server, and in memory under paused time.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/mod.rs"]
mod support;

mod acquiring;
mod giving_back;
mod polls;
mod stage;
mod storm;

use std::time::Duration;

macro_rules! on_every_store {
    ($($module:ident: $($story:ident)*;)*) => {
        mod redis {
            $($(
                #[tokio::test]
                async fn $story() {
                    super::$module::$story(&super::stage::Stage::redis().await).await;
                }
            )*)*
        }
        mod memory {
            $($(
                #[tokio::test(start_paused = true)]
                async fn $story() {
                    super::$module::$story(&super::stage::Stage::memory().await).await;
                }
            )*)*
        }
    };
}

on_every_store! {
    acquiring:
        an_acquire_of_a_free_lock_leaves_nothing_behind
        an_acquire_of_another_clients_lock_leaves_nothing_behind
        an_acquire_in_line_leaves_nothing_behind_and_lets_the_next_one_up
        a_re_entry_leaves_the_count_as_it_was
        a_run_gives_the_lock_back;
    giving_back:
        a_release_goes_on_without_its_caller
        a_partial_release_goes_on_without_its_caller
        a_release_that_is_dropped_lets_the_next_one_in
        an_extension_leaves_the_lock_held
        a_close_goes_on_without_its_caller;
}

/// Within this, a lock whose future was dropped is free.
const A_SECOND: Duration = Duration::from_secs(1);
/// The same on a machine that stands still now and then; far shorter than [`LEASE`].
const SOON: Duration = Duration::from_secs(6);
/// What is left behind would be seen for this long.
const LEASE: Duration = Duration::from_secs(30);
