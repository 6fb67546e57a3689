//! How long those wait who try again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Between the beginnings of two attempts to connect; doubled until one leads to something.
pub(super) const INITIAL_BACKOFF: Duration = Duration::from_millis(20);
pub(super) const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// Half of it to all of it, so that a crowd of clients does not come back all at once.
pub(super) fn jittered(backoff: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 1024;
    backoff / 2 + backoff.mul_f64(f64::from(u16::try_from(random).unwrap_or(0)) / 2048.0)
}
