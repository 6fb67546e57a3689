//! Futures dropped at every poll: within a second the lock is free, nothing is renewed, no subscription, task or map entry
//! remains, and every waiter behind the dropped one has its turn.
//!
//! Each story plays with each kind of lock on a simulated server, with scripts and without, and in memory, under virtual
//! time; with some kinds in a real file. Without scripts a request is many commands, and futures are dropped between
//! these as well ([`commands`]). Drops on several threads need a real runtime: `real.rs` is a part of the program `real`.

mod commands;
mod drop_at;
mod fixture;
mod leftovers;
mod locks;
mod multi;
mod numbers;

use std::time::Duration;

/// Makes one test of each story with each kind of lock on each store: `plain::redis::a_story`.
macro_rules! stories {
    ($stories:tt with $($kind:ident: $family:ident on [$($place:ident $store:ident),*];)*) => {
        $(mod $kind {
            stories! { @kind $family [$($place $store),*] $stories }
        })*
    };
    (@kind $family:ident [$($place:ident $store:ident),*] $stories:tt) => {
        $(mod $place {
            stories! { @store $family $store $stories }
        })*
    };
    (@store $family:ident $store:ident [$($module:ident::$story:ident)*]) => {
        $(
            #[test]
            fn $story() {
                use crate::cancellation::fixture::{Fixture, Store, play};
                use crate::support::$family;

                play(&[Store::$store], async || {
                    let fixture = Fixture::<$family>::of(Store::$store).await;
                    crate::cancellation::$module::$story(&fixture).await;
                });
            }
        )*
    };
}

stories! {
    [
        locks::an_acquire_of_a_free_lock_leaves_nothing_behind
        locks::an_acquire_of_another_clients_lock_leaves_nothing_behind
        locks::a_timed_out_acquire_leaves_nothing_behind
        locks::a_waiter_behind_its_own_client_leaves_nothing_behind_and_wakes_the_next
        locks::a_run_releases_the_lock
        locks::a_release_completes_without_its_caller
        locks::a_dropped_release_lets_the_next_waiter_in
        locks::an_extension_leaves_the_lock_held
        locks::a_close_completes_without_its_caller
    ] with
    plain: Plain on [redis Redis, redis_without_scripts WithoutScripts, memory Memory, sqlite File];
    simple: Simple on [redis Redis, redis_without_scripts WithoutScripts, memory Memory];
    fenced: Fenced on [redis Redis, redis_without_scripts WithoutScripts, memory Memory];
    fair: Fair on [redis Redis, memory Memory, sqlite File];
    readers: Read on [redis Redis, memory Memory];
    writers: Write on [redis Redis, memory Memory];
    permits: Semaphore on [redis Redis, memory Memory];
    several_permits: Several on [redis Redis, memory Memory, sqlite File];
}

/// Stories that need an owner that can re-enter, which permits do not have.
mod owners {
    stories! {
        [
            locks::a_dropped_re_entry_leaves_the_count_unchanged
            locks::a_partial_release_completes_without_its_caller
        ] with
        plain: Plain on [redis Redis, redis_without_scripts WithoutScripts, memory Memory, sqlite File];
        simple: Simple on [redis Redis, redis_without_scripts WithoutScripts];
        fenced: Fenced on [redis Redis, redis_without_scripts WithoutScripts];
        fair: Fair on [redis Redis, memory Memory];
        readers: Read on [redis Redis, memory Memory];
        writers: Write on [redis Redis, memory Memory];
    }
}

stories! {
    [
        numbers::an_acquire_of_free_permits_takes_them_or_leaves_them
        numbers::an_acquire_that_waits_for_permits_leaves_them_and_the_queue
        numbers::a_release_that_is_dropped_counts_once_or_not_at_all
        numbers::a_count_down_that_is_dropped_counts_once_or_not_at_all
        numbers::a_wait_for_a_latch_leaves_nothing_behind
    ] with
    without_owner: Plain on [redis Redis, memory Memory, sqlite File];
}

mod subscriptions {
    stories! {
        [leftovers::waiters_that_give_up_unsubscribe] with
        plain: Plain on [redis Redis];
        fair: Fair on [redis Redis];
    }
}

/// Within this time a lock whose future was dropped is free, and its next waiter has acquired it.
const A_SECOND: Duration = Duration::from_secs(1);
/// Upper bound for any wait, even on a real disk; far shorter than [`LEASE`].
const PATIENCE: Duration = Duration::from_secs(20);
/// The time for which an orphaned hold would be visible.
const LEASE: Duration = Duration::from_secs(90);
