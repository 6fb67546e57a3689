//! A point in time on a clock that only moves forward.

use std::num::NonZeroU64;
use std::ops::Add;
use std::time::Duration;

/// A moment, counted from the start of whichever clock the caller reads.
///
/// `std::time::Instant` cannot be made up in a test and stands still while a machine sleeps. A
/// `Moment` is only a number; the caller that reads the clock decides what it means.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Moment {
    /// Nanoseconds since the clock's zero, enough for five centuries. Never zero, so that an
    /// `Option<Moment>` takes no more room.
    nanos: NonZeroU64,
}

impl Moment {
    /// Returns the moment this long after the clock's zero.
    pub fn at(since_start: Duration) -> Self {
        Self::new(nanos(since_start))
    }

    /// Returns how long ago `earlier` was; zero if it is still to come.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos.get().saturating_sub(earlier.nanos.get()))
    }

    /// Returns this moment rounded down to a multiple of `grid`.
    pub fn align_down(self, grid: Duration) -> Self {
        let nanos = self.nanos.get();
        Self::new(nanos - nanos % self::nanos(grid).max(1))
    }

    /// Returns the nanoseconds since the clock's zero.
    pub const fn as_nanos(self) -> u64 {
        self.nanos.get()
    }

    fn new(nanos: u64) -> Self {
        let nanos = NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN);
        Self { nanos }
    }
}

/// Sums beyond the end of time stop there instead of panicking: a wait may be `Duration::MAX`.
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
