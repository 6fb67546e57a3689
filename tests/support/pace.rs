//! Time as a busy machine has it to give.
//!
//! A bound that tells right from wrong by seconds (was the waiter told, or did it ask by itself?) must
//! not fail because nothing ran for a second. So it is counted in ticks of the very runtime the work
//! runs on: on an idle machine they are the clock's, and a machine that stands still for a while stands
//! still for both.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

/// A clock of the machine's time, for what begins in one task and ends in another.
#[derive(Debug)]
pub(crate) struct Pace {
    millis: Arc<AtomicU64>,
    ticking: AbortHandle,
}

impl Pace {
    /// Begins to count, on the runtime of whoever calls.
    pub(crate) fn start() -> Self {
        let millis = Arc::new(AtomicU64::new(0));
        let counted = millis.clone();
        let ticking = tokio::spawn(async move {
            loop {
                let ((), taken) = paced(tokio::time::sleep(TICK)).await;
                let taken = u64::try_from(taken.as_millis()).expect("it is short");
                counted.fetch_add(taken, Ordering::Relaxed);
            }
        });
        Self {
            millis,
            ticking: ticking.abort_handle(),
        }
    }

    /// How much time the machine has had since it began.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.ticking.abort();
    }
}

/// Does the work, and says how much of the machine's time it took: no more than the clock's.
pub(crate) async fn paced<F: Future>(work: F) -> (F::Output, Duration) {
    let paced = paced_timeout(Duration::MAX, work).await;
    paced.expect("there is no end to its time")
}

/// The same, given up as soon as it has taken that much of the machine's time.
pub(crate) async fn paced_timeout<F: Future>(
    limit: Duration,
    work: F,
) -> Option<(F::Output, Duration)> {
    let mut work = pin!(work);
    let mut taken = Duration::ZERO;
    while taken < limit {
        let since = Instant::now();
        let done = tokio::select! {
            biased;
            done = &mut work => Some(done),
            () = tokio::time::sleep(TICK) => None,
        };
        // What goes beyond it was somebody else's.
        taken = taken.saturating_add(since.elapsed().min(LONGEST_TICK));
        if let Some(done) = done {
            return Some((done, taken));
        }
    }
    None
}

const TICK: Duration = Duration::from_millis(10);
/// Timers are late by a millisecond or two on an idle machine, too.
const LONGEST_TICK: Duration = Duration::from_millis(15);
