//! Jitter: it keeps apart clients that would otherwise move in step.

use std::time::Duration;

/// Returns a random part of `longest`.
pub fn spread(longest: Duration, seed: u64) -> Duration {
    longest.mul_f64(fraction(seed))
}

/// Returns a number between 0 and 1 (splitmix64; a few bits are plenty to keep waiters apart).
pub(super) fn fraction(seed: u64) -> f64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    f64::from(u16::try_from((z ^ (z >> 31)) >> 48).unwrap_or(0)) / f64::from(u16::MAX)
}
