//! Seeded random numbers.

use std::time::Duration;

/// A small generator (SplitMix64): its output depends on its seed alone.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Starts a generator with the seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below the limit, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Starts another sequence, which depends on the seed and its number alone.
    pub const fn stream(seed: u64, number: u64) -> Self {
        Self(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// Returns a duration below the limit, in whole milliseconds.
    pub fn up_to(&mut self, limit: Duration) -> Duration {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.below(limit.max(1)))
    }

    /// Returns whether an event occurs that occurs this many times out of a hundred.
    pub fn percent(&mut self, times: u64) -> bool {
        self.below(100) < times
    }

    /// Returns forty hexadecimal digits, the form of a run id.
    pub(crate) fn run_id(&mut self) -> String {
        let (first, second, third) = (self.next(), self.next(), self.next());
        format!("{first:016x}{second:016x}{:08x}", third >> 32)
    }
}
