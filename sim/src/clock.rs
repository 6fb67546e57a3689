//! The wall clock of a simulated host.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The wall clock of a simulated host: a fixed date plus the time that has passed on tokio's clock since it was made.
///
/// Clones show the same time. With `tokio::time::pause` the time is virtual.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: Instant,
    /// The microseconds that the clock gains per second.
    drift_ppm: i64,
    /// The microseconds by which the clock was set forward, or back.
    offset: Arc<AtomicI64>,
}

impl Clock {
    /// Starts a clock at the first of January 2030.
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
            drift_ppm: 0,
            offset: Arc::default(),
        }
    }

    /// Starts a clock that gains this many microseconds per second, or loses them.
    pub fn drifting(ppm: i64) -> Self {
        let mut clock = Self::new();
        clock.drift_ppm = ppm;
        clock
    }

    /// Returns the milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// Returns the microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        let elapsed = self.origin.elapsed().as_micros();
        let elapsed = i64::try_from(elapsed).unwrap_or(i64::MAX / 4);
        let drift = i128::from(elapsed) * i128::from(self.drift_ppm) / 1_000_000;
        let drift = i64::try_from(drift).unwrap_or(0);
        let passed = elapsed + drift + self.offset.load(Ordering::Relaxed);
        EPOCH_US.saturating_add_signed(passed)
    }

    /// Sets the clock forward, as an administrator does. Timers do not notice; readers of the clock do.
    pub fn advance_wall(&self, by: Duration) {
        self.offset.fetch_add(micros(by), Ordering::Relaxed);
    }

    /// Sets the clock back.
    pub fn set_back(&self, by: Duration) {
        self.offset.fetch_sub(micros(by), Ordering::Relaxed);
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// 2030-01-01 00:00:00 UTC.
const EPOCH_US: u64 = 1_893_456_000_000_000;
