//! One time axis for all processes: the machine's monotonic clock, which Java's `System.nanoTime` reads too.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time of the machine's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Stamp(i64);

impl Stamp {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        Self(now.tv_sec * 1_000_000_000 + now.tv_nsec)
    }

    pub(crate) const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn nanos(self) -> i64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` is in the future.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Stamp {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// The times at which a call was made and at which it returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: Stamp,
    pub(crate) to: Stamp,
}

impl Span {
    pub(crate) fn took(self) -> Duration {
        self.to.since(self.from)
    }
}
