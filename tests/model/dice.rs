//! Random values: numbers, times, and the tokens that a client has seen.

use std::time::Duration;

use distlock::internals::protocol::FencingToken;

use super::support::SeededRng;

/// Returns the token that a client may have seen: none, an old one, or one from a server whose clock is far ahead.
pub(crate) fn seen(rng: &mut SeededRng) -> Option<FencingToken> {
    match rng.below(10) {
        0 => Some(FencingToken::new(1)),
        1 => Some(FencingToken::new(4_000_000_000_000_000 + rng.below(10))),
        _ => None,
    }
}

/// Returns a lease, or the length of a wait: half a tick, and some more ticks.
pub(crate) fn time(tick: Duration, rng: &mut SeededRng) -> Duration {
    tick / 2 + tick * number_below(LONGEST, rng)
}

pub(crate) fn number_below(bound: u32, rng: &mut SeededRng) -> u32 {
    u32::try_from(rng.below(u64::from(bound))).expect("below a u32")
}

pub(crate) fn index_below(length: usize, rng: &mut SeededRng) -> usize {
    usize::try_from(rng.below(length as u64)).expect("below a usize")
}

/// Leases last half a tick and fewer than this many more.
const LONGEST: u32 = 5;
