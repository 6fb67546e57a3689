//! Redisson's format, byte for byte, and Redisson itself as a peer on the same server. The tests that depend on time are in `simulated.rs`.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use crate::support;

mod counting;
mod fair;
#[path = "fair/format.rs"]
mod fair_format;
mod fenced;
mod format;
mod latch;
mod lost_number;
mod rw;
mod semaphore;
mod stage;
mod without_end;

use self::stage::*;
