//! Bad input gets a clear error and costs no hold. The tests on a simulated server are in `simulated.rs`.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use crate::support;

mod addresses;
mod checks;
mod cost;
mod event_log;
mod eviction;
mod formats;
mod inspection;
mod names;
mod passwords;

use self::checks::*;
