//! The rules and a store, asked at the same moments.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use distlock::internals::engine::memory::Memory;
use distlock::internals::engine::{BoxFuture, Engine};
use distlock::internals::protocol::Moment;
use tokio::time::Instant;

use super::clock::Clock;
use super::sequence::Asked;

/// Between two actions on one name.
pub(crate) const TICK: Duration = Duration::from_millis(1000);
/// Leases grow no longer than for this.
const LONGEST_TICK: Duration = Duration::from_secs(3);

/// Memory, which lives by a clock that stands still between two questions, and a store, which keeps its own.
pub(crate) struct Pair {
    pub(crate) memory: Arc<Memory>,
    pub(crate) store: Arc<dyn Engine>,
    /// That the store lives by.
    clock: Clock,
    /// What it said last, in nanoseconds: the time memory lives in.
    present: Arc<AtomicU64>,
}

impl Pair {
    pub(crate) fn new(store: Arc<dyn Engine>, clock: Clock) -> Self {
        let present = Arc::new(AtomicU64::new(clock.now().as_nanos()));
        let now = {
            let present = present.clone();
            move || Moment::at(Duration::from_nanos(present.load(Ordering::Relaxed)))
        };
        Self {
            memory: Arc::new(Memory::new(Arc::new(now))),
            store,
            clock,
            present,
        }
    }

    /// Moves memory's time to the present.
    pub(crate) fn now(&self) -> Moment {
        let now = self.clock.now();
        self.live_at(now);
        now
    }

    pub(crate) fn live_at(&self, now: Moment) {
        self.present.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When both were asked, who have now answered.
    pub(crate) fn since(&self, sent: Moment) -> Asked {
        let now = self.clock.now();
        // Set back meanwhile: nothing can be said of what was asked then.
        let latency = match now < sent {
            true => Duration::MAX,
            false => now.since(sent),
        };
        Asked { sent, latency }
    }
}

/// When the next actions are due.
pub(crate) struct Ticks {
    clock: Clock,
    due: Instant,
}

impl Ticks {
    pub(crate) fn begin(clock: Clock) -> Self {
        let due = Instant::now();
        Self { clock, due }
    }

    /// Waits for the next tick, or advances the clock if the test sets it. Returns how long the tick was: a busy machine makes ticks longer,
    /// and the leases with them.
    pub(crate) async fn next(&mut self) -> Duration {
        let last = self.due;
        if self.clock.advance(TICK) {
            self.due = Instant::now();
            return TICK;
        }
        self.due = (last + TICK).max(Instant::now());
        tokio::time::sleep_until(self.due).await;
        (self.due - last).min(LONGEST_TICK)
    }

    /// How long this one has taken so far.
    pub(crate) fn taken(&self) -> Duration {
        self.due.elapsed()
    }
}

/// Waits for all of them, and looks at each in turn: the first poll sends it.
pub(crate) async fn all<T>(calls: Vec<BoxFuture<T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.into_iter().map(|call| (call, None)).collect();
    poll_fn(|cx| {
        for (call, answer) in &mut calls {
            if answer.is_none()
                && let Poll::Ready(ready) = call.as_mut().poll(cx)
            {
                *answer = Some(ready);
            }
        }
        let done = calls.iter().all(|(_, answer)| answer.is_some());
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    calls.into_iter().filter_map(|(_, answer)| answer).collect()
}
