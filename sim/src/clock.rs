//! The wall clock of a simulated host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The wall clock of a simulated host: a fixed date plus what has passed on tokio's clock since it was made.
///
/// Clones show the same time. With `tokio::time::pause` the time is virtual.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: Instant,
    /// By how many microseconds somebody has set the clock forward.
    offset: Arc<AtomicU64>,
}

impl Clock {
    /// Starts a clock at the first of January 2030.
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
            offset: Arc::default(),
        }
    }

    /// Returns the milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// Returns the microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        let elapsed = self.origin.elapsed().as_micros();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX / 2);
        EPOCH_US + elapsed + self.offset.load(Ordering::Relaxed)
    }

    /// Sets the clock forward, as an administrator does. Timers do not notice; whoever reads the clock does.
    pub fn advance_wall(&self, by: Duration) {
        let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX / 2);
        self.offset.fetch_add(by, Ordering::Relaxed);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// 2030-01-01 00:00:00 UTC.
const EPOCH_US: u64 = 1_893_456_000_000_000;
