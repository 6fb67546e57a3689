//! The clock by which a store's leases end. The memory engine gets the same time, so that a change of the machine's clock in
//! the middle of a test moves both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::internals::protocol::Moment;

#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The clock of Redis is the machine's, which can be set.
    Wall,
    /// The clock of the file, in nanoseconds, which only this test sets.
    Set(Arc<AtomicU64>),
}

impl Clock {
    /// Makes a clock that stands still until it is advanced.
    pub(crate) fn set() -> Self {
        let begun = Duration::from_secs(1_000_000);
        let nanos = u64::try_from(begun.as_nanos()).expect("it fits");
        Self::Set(Arc::new(AtomicU64::new(nanos)))
    }

    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::Wall => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                Moment::at(now.expect("nobody sets it back that far"))
            }
            Self::Set(nanos) => Moment::at(Duration::from_nanos(nanos.load(Ordering::Relaxed))),
        }
    }

    /// Advances a clock that the test sets. Returns whether this is such a clock.
    pub(crate) fn advance(&self, by: Duration) -> bool {
        let Self::Set(nanos) = self else { return false };
        let by = u64::try_from(by.as_nanos()).expect("it fits");
        nanos.fetch_add(by, Ordering::Relaxed);
        true
    }
}
