//! A point in time on some clock that only moves forward.

use std::ops::Add;
use std::time::Duration;

/// A moment, counted from the start of whichever clock the caller reads.
///
/// `std::time::Instant` cannot be made up in a test and stands still while a machine sleeps; this one
/// is only a number, and who reads the clock decides what it means.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after the clock's zero.
    pub const fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// How long ago `earlier` was; zero if it is still to come.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment rounded down to a multiple of `grid`.
    pub fn align_down(self, grid: Duration) -> Self {
        let grid = grid.as_nanos().max(1);
        let over = self.0.as_nanos() % grid;
        Self(self.0.saturating_sub(nanos(over)))
    }
}

/// Far-away sums stop at the end of time instead of panicking: a wait may be `Duration::MAX`.
impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

fn nanos(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}
