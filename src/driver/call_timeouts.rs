//! Notices requests that get no reply. One tick counter serves all calls of a client: a timer for each call was a tenth
//! of the call's cost.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::no_reply;
use crate::engine::StoreError;
use crate::engine::events::Events;
use crate::engine::fork_detector::ForkDetector;
use crate::engine::supervise::{Restarts, catch_panic};
use crate::engine::waker_executor::{WakerExecutor, WakerProxy};

/// Number of ticks in the time limit of a call, if each tick is long enough: a call without a reply is given up one
/// tick late at most.
const TICKS: u32 = 16;
const MIN_TICK: Duration = Duration::from_millis(1);

/// The calls of one client that wait for a reply, all with the same time limit.
pub(crate) struct CallTimeouts {
    limit: Duration,
    tick_length: Duration,
    fork_detector: ForkDetector,
    waker_executor: WakerExecutor,
    pending: Mutex<PendingCalls>,
    /// Notified by the first call after a time without calls.
    first_call: Notify,
}

#[derive(Default)]
struct PendingCalls {
    /// How many ticks have passed, and how many a call may wait.
    tick: u32,
    max_ticks: u32,
    calls: Vec<TimedCall>,
    free: Vec<usize>,
    /// Whether the ticks are being counted, and whether a call has begun since they last were.
    ticking: bool,
    begun: bool,
}

enum TimedCall {
    /// This entry is free.
    Free,
    Waits {
        since: u32,
        waker: Waker,
    },
    /// The call has waited for too long.
    Expired,
}

/// Resolves to the reply, or to `None` if it takes too long.
pub(super) struct WithCallTimeout<'a, A> {
    future: A,
    call_timeouts: &'a CallTimeouts,
    call: Option<usize>,
    waker_proxy: WakerProxy,
}

impl CallTimeouts {
    pub(super) fn new(limit: Duration, waker_executor: WakerExecutor) -> Arc<Self> {
        let tick_length = (limit / TICKS).max(MIN_TICK);
        let max_ticks = limit.as_nanos().div_ceil(tick_length.as_nanos());
        let pending = PendingCalls {
            max_ticks: u32::try_from(max_ticks).unwrap_or(TICKS),
            ..PendingCalls::default()
        };
        Arc::new(Self {
            limit,
            tick_length,
            fork_detector: ForkDetector::current(),
            waker_executor,
            pending: Mutex::new(pending),
            first_call: Notify::new(),
        })
    }

    pub(super) const fn with_timeout<A: Future + Unpin>(
        &self,
        future: A,
    ) -> WithCallTimeout<'_, A> {
        WithCallTimeout {
            future,
            call_timeouts: self,
            call: None,
            waker_proxy: WakerProxy::NONE,
        }
    }

    /// Counts the ticks for as long as this is polled.
    pub(super) async fn count(self: Arc<Self>, events: Events) {
        let mut restarts = Restarts::new("timeouts", &events);
        while let Err(panicked) = catch_panic(self.run_ticks()).await {
            restarts.report_and_wait(panicked).await;
            // Calls that are waiting already do not notify again.
            self.first_call.notify_one();
        }
    }

    /// Counts the ticks while calls wait, and sleeps otherwise.
    #[expect(clippy::disallowed_methods, reason = "one timer serves all calls")]
    async fn run_ticks(&self) {
        loop {
            self.first_call.notified().await;
            let mut counted = Instant::now();
            loop {
                tokio::time::sleep(self.tick_length).await;
                let elapsed_ticks = counted.elapsed().as_nanos() / self.tick_length.as_nanos();
                // A process that was suspended for a while first gets to read the replies that have arrived meanwhile.
                let ticks = u32::try_from(elapsed_ticks)
                    .unwrap_or(TICKS)
                    .clamp(1, TICKS / 2);
                counted = if elapsed_ticks > u128::from(ticks) {
                    Instant::now()
                } else {
                    counted + self.tick_length * ticks
                };
                let (expired, more) = self.lock().count(ticks);
                expired.into_iter().for_each(Waker::wake);
                if !more {
                    break;
                }
            }
        }
    }

    fn begin(&self, waker: &Waker) -> usize {
        let mut pending = self.lock();
        pending.begun = true;
        if !std::mem::replace(&mut pending.ticking, true) {
            self.first_call.notify_one();
        }
        pending.begin(waker.clone())
    }

    fn lock(&self) -> MutexGuard<'_, PendingCalls> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingCalls {
    fn begin(&mut self, waker: Waker) -> usize {
        let since = self.tick;
        let call = TimedCall::Waits { since, waker };
        match self.free.pop() {
            Some(index) => {
                self.calls[index] = call;
                index
            }
            None => {
                self.calls.push(call);
                self.calls.len() - 1
            }
        }
    }

    /// Returns whether the call has waited for too long, and the waker that has to be dropped without the lock.
    fn check(&mut self, index: usize, now: &Waker) -> (bool, Option<Waker>) {
        match &mut self.calls[index] {
            TimedCall::Expired => (true, None),
            TimedCall::Waits { waker, .. } if !waker.will_wake(now) => {
                (false, Some(std::mem::replace(waker, now.clone())))
            }
            TimedCall::Waits { .. } | TimedCall::Free => (false, None),
        }
    }

    fn end(&mut self, index: usize) -> TimedCall {
        self.free.push(index);
        std::mem::replace(&mut self.calls[index], TimedCall::Free)
    }

    /// Advances the count by `ticks`; returns the wakers of the calls that have expired, and whether to go on counting.
    fn count(&mut self, ticks: u32) -> (Vec<Waker>, bool) {
        self.tick = self.tick.wrapping_add(ticks);
        let mut expired = Vec::new();
        let mut pending = false;
        for call in &mut self.calls {
            let TimedCall::Waits { since, .. } = call else {
                continue;
            };
            // The tick in which the call began does not count.
            if self.tick.wrapping_sub(*since) <= self.max_ticks {
                pending = true;
            } else if let TimedCall::Waits { waker, .. } =
                std::mem::replace(call, TimedCall::Expired)
            {
                expired.push(waker);
            }
        }
        let begun = std::mem::take(&mut self.begun);
        self.ticking = begun || pending;
        if !self.ticking && self.free.len() == self.calls.len() {
            // The memory for the largest number of calls so far is not kept.
            self.calls = Vec::new();
            self.free = Vec::new();
        }
        (expired, self.ticking)
    }
}

impl<A> WithCallTimeout<'_, A> {
    /// Returns the error for a reply that did not arrive.
    pub(super) fn failure(&self) -> StoreError {
        no_reply(self.call_timeouts.limit)
    }
}

impl<A: Future + Unpin> Future for WithCallTimeout<'_, A> {
    type Output = Option<A::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let waker = this
            .waker_proxy
            .waker(&this.call_timeouts.waker_executor, cx.waker());
        if let Poll::Ready(output) =
            Pin::new(&mut this.future).poll(&mut Context::from_waker(waker))
        {
            return Poll::Ready(Some(output));
        }
        // A forked child has no task that counts, and its mutexes may be locked by threads that do not exist there.
        if this.call_timeouts.fork_detector.has_forked() {
            return Poll::Ready(None);
        }
        let Some(index) = this.call else {
            this.call = Some(this.call_timeouts.begin(waker));
            return Poll::Pending;
        };
        let (expired, before) = this.call_timeouts.lock().check(index, waker);
        drop(before);
        if expired {
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

impl<A> Drop for WithCallTimeout<'_, A> {
    fn drop(&mut self) {
        if let Some(index) = self.call
            && !self.call_timeouts.fork_detector.has_forked()
        {
            let ended = self.call_timeouts.lock().end(index);
            drop(ended);
        }
    }
}

impl fmt::Debug for CallTimeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = self.lock();
        f.debug_struct("CallTimeouts")
            .field("waiting", &(pending.calls.len() - pending.free.len()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn few_ticks() -> PendingCalls {
        PendingCalls {
            max_ticks: 4,
            ..PendingCalls::default()
        }
    }

    #[test]
    fn short_limits_have_fewer_ticks() {
        for (limit, tick_length, max_ticks) in [(1, 1, 1), (5, 1, 5), (16, 1, 16), (1600, 100, 16)]
        {
            let call_timeouts =
                CallTimeouts::new(Duration::from_millis(limit), WakerExecutor::inline());
            let pending = call_timeouts.lock();
            assert_eq!(
                (call_timeouts.tick_length, pending.max_ticks),
                (Duration::from_millis(tick_length), max_ticks)
            );
        }
        let longest = CallTimeouts::new(Duration::MAX, WakerExecutor::inline());
        assert!(longest.lock().max_ticks >= TICKS);
    }

    #[test]
    fn a_call_expires_after_all_ticks_and_not_before() {
        let mut pending = few_ticks();
        pending.count(1);
        let index = pending.begin(Waker::noop().clone());
        for ticks in [1, 1, 2] {
            let (expired, more) = pending.count(ticks);
            assert!(expired.is_empty() && more);
            assert!(!pending.check(index, Waker::noop()).0);
        }
        let (expired, more) = pending.count(1);
        assert!(expired.len() == 1 && !more, "nobody is left to count for");
        assert!(pending.check(index, Waker::noop()).0);
        pending.end(index);
    }

    #[test]
    fn no_memory_is_kept_without_calls() {
        let mut pending = few_ticks();
        let indices: Vec<_> = (0..9)
            .map(|_| pending.begin(Waker::noop().clone()))
            .collect();
        for index in indices {
            pending.end(index);
        }
        pending.begun = true;
        assert!(pending.count(1).1, "there was one a moment ago");
        assert!(!pending.count(1).1);
        assert_eq!(pending.calls.capacity(), 0);
        assert_eq!(pending.begin(Waker::noop().clone()), 0);
    }
}
