//! One time axis for all processes: the machine's monotonic clock, which Java's `System.nanoTime` reads too.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment of the machine's monotonic clock, in nanoseconds.
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

    /// Zero if that is yet to come.
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

/// By how much the clock on the wall is ahead of the monotonic one, which nobody sets. Redis ends leases by the former.
pub(crate) struct Wall(i64);

impl Wall {
    pub(crate) fn now() -> Self {
        loop {
            let before = Stamp::now();
            let wall = clock_gettime(ClockId::Realtime);
            // Once more, if the machine stood still in between.
            if Stamp::now().since(before) < Duration::from_millis(10) {
                return Self(wall.tv_sec * 1_000_000_000 + wall.tv_nsec - before.nanos());
            }
        }
    }

    /// Whether somebody has set it since: what failed meanwhile says nothing of us.
    pub(crate) fn was_set(&self) -> bool {
        (Self::now().0 - self.0).unsigned_abs() > 100_000_000
    }
}

/// When a call was made and when it returned.
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
