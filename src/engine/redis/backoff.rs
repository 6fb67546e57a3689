//! Backoff between attempts to connect.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Time between the starts of two attempts to connect. It doubles until an attempt succeeds.
pub(super) const INITIAL_BACKOFF: Duration = Duration::from_millis(20);
pub(super) const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// Returns a random time from half of `backoff` to all of it, so that many clients do not reconnect at the same moment.
pub(super) fn jittered(backoff: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 1024;
    backoff / 2 + backoff.mul_f64(f64::from(u16::try_from(random).unwrap_or(0)) / 2048.0)
}
