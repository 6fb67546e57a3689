//! The memory engine and a store, which get the same requests at the same moments.

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

/// The time between two actions on one name.
pub(crate) const TICK: Duration = Duration::from_millis(1000);
/// The longest tick that leases are scaled to.
const LONGEST_TICK: Duration = Duration::from_secs(3);

/// The memory engine, whose clock stands still between two requests, and a store with a clock of its own.
pub(crate) struct Pair {
    pub(crate) memory: Arc<Memory>,
    pub(crate) store: Arc<dyn Engine>,
    /// The clock of the store's leases.
    clock: Clock,
    /// The last time read from that clock, in nanoseconds: the present of the memory engine.
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

    /// Moves memory's time to the present, and returns it.
    pub(crate) fn now(&self) -> Moment {
        let now = self.clock.now();
        self.live_at(now);
        now
    }

    pub(crate) fn live_at(&self, now: Moment) {
        self.present.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Returns when both engines were sent a request that they have answered by now.
    pub(crate) fn since(&self, sent: Moment) -> Asked {
        let now = self.clock.now();
        // The clock was set back meanwhile: no conclusion about the request is possible.
        let latency = match now < sent {
            true => Duration::MAX,
            false => now.since(sent),
        };
        Asked { sent, latency }
    }
}

/// The schedule of the actions.
pub(crate) struct Ticks {
    clock: Clock,
    due: Instant,
}

impl Ticks {
    pub(crate) fn begin(clock: Clock) -> Self {
        let due = Instant::now();
        Self { clock, due }
    }

    /// Waits for the next tick, or advances the clock if the test sets it. Returns how long the tick was: a busy machine
    /// makes ticks longer, and the leases with them.
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

    /// Returns how long this tick has taken so far.
    pub(crate) fn taken(&self) -> Duration {
        self.due.elapsed()
    }
}

/// Waits for all calls, and polls each in turn: the first poll sends its request.
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
