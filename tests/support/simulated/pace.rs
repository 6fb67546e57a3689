//! How long work takes, which under virtual time is what the clock says.

use std::time::Duration;

use tokio::time::{Instant, timeout};

/// A stopwatch, for what begins in one task and ends in another.
#[derive(Debug)]
pub(crate) struct Pace(Instant);

impl Pace {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Does the work, and returns how long it took.
pub(crate) async fn paced<F: Future>(work: F) -> (F::Output, Duration) {
    let begun = Instant::now();
    (work.await, begun.elapsed())
}

/// The same, given up after the limit.
pub(crate) async fn paced_timeout<F: Future>(
    limit: Duration,
    work: F,
) -> Option<(F::Output, Duration)> {
    timeout(limit, paced(work)).await.ok()
}
