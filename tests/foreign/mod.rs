//! Data of other programs stays byte for byte as it is, whatever operation is applied to a lock of the same name.
//!
//! The corpus has keys as real programs write them, and each of them is the name of a lock, or a key that a lock would keep beside its own.
//! Every public operation of every kind is applied to each of these names. Afterwards each key of the corpus is as it was (`DUMP`, type,
//! expiry), the operation has refused the name or found nothing, and the server has done little for it.
//!
//! Exempt, since these keys cannot be distinguished from what distlock and Redisson write:
//!
//! - a string that is an integer, for the operations that change a number: permits, counting semaphores, latches;
//! - a string that is an owner (`uuid:number`, as BullMQ's job locks are), for an operator who force-unlocks it or releases that owner: it
//!   is a simple lock;
//! - a sorted set in the format of permits, where it replaces the permits of a semaphore that has its number.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use crate::support;

mod corpus;
mod coverage;
mod held;
mod module;
mod named;
mod operations;
mod outcome;
mod reading;
mod renewed;
mod stage;
mod whole;

use std::time::Duration;

/// Upper bound for any wait on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
