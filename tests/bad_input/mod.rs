//! Bad input gets a clear answer, and costs nothing that is held. What a simulated server can show is in `simulated.rs`.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use crate::support;

mod addresses;
mod checks;
mod cost;
mod diary;
mod eviction;
mod formats;
mod inspection;
mod names;
mod passwords;

use self::checks::*;
