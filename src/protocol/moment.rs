//! A point in time on some clock that only moves forward.

use std::num::NonZeroU64;
use std::ops::Add;
use std::time::Duration;

/// A moment, counted from the start of whichever clock the caller reads.
///
/// `std::time::Instant` cannot be made up in a test and stands still while a machine sleeps; this one
/// is only a number, and who reads the clock decides what it means.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Moment {
    /// Since the clock's zero; enough for five centuries. Never zero itself, so that one that may be missing
    /// takes no more room.
    nanos: NonZeroU64,
}

impl Moment {
    /// The moment this long after the clock's zero.
    pub fn at(since_start: Duration) -> Self {
        Self::new(nanos(since_start))
    }

    /// How long ago `earlier` was; zero if it is still to come.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos.get().saturating_sub(earlier.nanos.get()))
    }

    /// This moment rounded down to a multiple of `grid`.
    pub fn align_down(self, grid: Duration) -> Self {
        let nanos = self.nanos.get();
        Self::new(nanos - nanos % self::nanos(grid).max(1))
    }

    /// How many nanoseconds after the clock's zero.
    pub const fn as_nanos(self) -> u64 {
        self.nanos.get()
    }

    fn new(nanos: u64) -> Self {
        let nanos = NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN);
        Self { nanos }
    }
}

/// Far-away sums stop at the end of time instead of panicking: a wait may be `Duration::MAX`.
impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self::new(self.nanos.get().saturating_add(nanos(wait)))
    }
}

fn nanos(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(time.subsec_nanos()))
}
