//! Compares the memory engine's pure rules with the Redis engine's scripts, and with the embedded store's file: the same
//! random requests at the same times must get the same replies.
//!
//! Thousands of sequences run side by side, each on a name of its own, in lock-step: one action per tick. The memory engine
//! gets the time at which a request is sent to the store, which has a clock of its own. Leases end halfway between two
//! ticks, so that ends and actions stay apart. If a busy machine has brought them together all the same, different replies
//! may both be right, and that sequence does not count. Enough others must be left.

#![cfg(all(feature = "redis", feature = "sqlite", feature = "internals"))]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use crate::support;

mod clock;
mod compare;
mod contest;
mod dice;
mod generator;
mod keyspace;
mod kinds;
mod lane;
mod listening;
mod numbers;
mod pair;
mod sequence;

use distlock::internals::protocol::Kind;

use contest::{against_a_file, against_redis};
use kinds::Kinds;

/// Kinds that may share a name, because their states can be told apart.
const MIXED: [Kind; 4] = [Kind::Mutex, Kind::Fenced, Kind::Fair, Kind::Simple];
/// Both sides of one lock.
const BOTH: [Kind; 2] = [Kind::Read, Kind::Write];
/// The kinds that need no scripts.
const UNSCRIPTED: [Kind; 3] = [Kind::Mutex, Kind::Fenced, Kind::Simple];

/// Random requests get the same replies from memory and from Redis.
mod redis_replies_like_memory {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks() {
        against_redis(Kinds::Only(Kind::Mutex), true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fenced_locks() {
        against_redis(Kinds::Only(Kind::Fenced), true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fair_locks() {
        against_redis(Kinds::Only(Kind::Fair), true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_read_write_locks() {
        against_redis(Kinds::Any(&BOTH), true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_simple_locks() {
        against_redis(Kinds::Only(Kind::Simple), true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_semaphores() {
        against_redis(Kinds::Only(Kind::Semaphore), true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_latches() {
        against_redis(Kinds::Only(Kind::Latch), true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_counting_semaphores() {
        against_redis(Kinds::Only(Kind::Counting), true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_one_name_for_all_kinds() {
        against_redis(Kinds::Any(&MIXED), true).await;
    }
}

/// Random requests get the same replies from memory and from Redis without scripts.
mod redis_without_scripts_replies_like_memory {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks() {
        against_redis(Kinds::Only(Kind::Mutex), false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fenced_locks() {
        against_redis(Kinds::Only(Kind::Fenced), false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_simple_locks() {
        against_redis(Kinds::Only(Kind::Simple), false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_one_name_for_all_kinds() {
        against_redis(Kinds::Any(&UNSCRIPTED), false).await;
    }
}

/// Random requests get the same replies from memory and from a file.
mod a_file_replies_like_memory {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks() {
        against_a_file(Kinds::Only(Kind::Mutex)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fenced_locks() {
        against_a_file(Kinds::Only(Kind::Fenced)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fair_locks() {
        against_a_file(Kinds::Only(Kind::Fair)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_read_write_locks() {
        against_a_file(Kinds::Any(&BOTH)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_simple_locks() {
        against_a_file(Kinds::Only(Kind::Simple)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_semaphores() {
        against_a_file(Kinds::Only(Kind::Semaphore)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_latches() {
        against_a_file(Kinds::Only(Kind::Latch)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_counting_semaphores() {
        against_a_file(Kinds::Only(Kind::Counting)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_one_name_for_all_kinds() {
        against_a_file(Kinds::Any(&MIXED)).await;
    }
}
