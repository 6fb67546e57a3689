//! One time axis for all processes: the machine's monotonic clock, which every contestant's language reads.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds of the machine's monotonic clock.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let nanos = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    u64::try_from(nanos).expect("the machine was started in the past")
}
