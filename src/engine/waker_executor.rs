//! Wakes the application's tasks where a waker that blocks or panics harms only its owner.
//!
//! A waker is the application's code wherever its executor is not tokio: a combinator's, another
//! executor's, a test's. It is called by the task that completes what the waiting task needs, which
//! is often a task that keeps leases alive. So a future of the application that waits for such a
//! task is wrapped in [`WithWakerProxy`]: unless its waker is one of tokio's own, which only put a
//! task into a queue, a proxy is registered in its place that hands the real waker to a thread.
//!
//! One thread calls the wakers one after the other, and a second one is ready to replace it: a
//! waker that does not return within `STUCK_AFTER` keeps its thread and delays the others by no
//! more than that.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use super::fork_detector::ForkDetector;

/// The time after which a waker that has not returned is left to its thread, and another thread
/// goes on.
const STUCK_AFTER: Duration = Duration::from_millis(20);

/// How long a thread waits for another waker before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many threads wait for wakers: one to call them, one to replace it.
const MAX_IDLE_THREADS: usize = 2;

/// The executor of the wakers of one client's tasks, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct WakerExecutor(Option<Arc<PoolHandle>>);

/// Ends the idle threads with the last clone of [`WakerExecutor`].
#[derive(Debug)]
struct PoolHandle(Arc<WakerPool>);

/// The future of [`WakerExecutor::with_waker_proxy_unpin`].
#[derive(Debug)]
pub struct WithWakerProxy<'a, F> {
    future: F,
    waker_executor: &'a WakerExecutor,
    waker_proxy: WakerProxy,
}

/// The waker that is registered in place of one task's waker, if one has to be.
#[derive(Debug, Default)]
pub struct WakerProxy(Option<Box<(Waker, Waker)>>);

impl WakerExecutor {
    /// Creates an executor that wakes in the thread that completes what a task waits for: where one
    /// runtime does everything, under a clock that may be paused. It catches a panic all the same.
    pub const fn inline() -> Self {
        Self(None)
    }

    /// Creates an executor with threads that exist only while they are needed.
    pub fn threads() -> Self {
        Self(Some(Arc::new(PoolHandle(Arc::new(WakerPool {
            fork_detector: ForkDetector::current(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })))))
    }

    /// Awaits a future and wakes its task through this executor.
    pub async fn with_waker_proxy<F>(&self, future: F) -> F::Output
    where
        F: Future + Send,
        F::Output: Send,
    {
        self.with_waker_proxy_unpin(pin!(future)).await
    }

    /// Wraps a future that can be moved, as [`with_waker_proxy`](Self::with_waker_proxy) does.
    pub const fn with_waker_proxy_unpin<F: Future + Unpin>(
        &self,
        future: F,
    ) -> WithWakerProxy<'_, F> {
        WithWakerProxy {
            future,
            waker_executor: self,
            waker_proxy: WakerProxy::NONE,
        }
    }
}

impl WakerProxy {
    /// The proxy before it has a waker.
    pub const NONE: Self = Self(None);

    /// Returns the waker to register in place of `waker`.
    pub fn waker<'a>(&'a mut self, waker_executor: &WakerExecutor, waker: &'a Waker) -> &'a Waker {
        if is_trusted(waker) {
            return waker;
        }
        if self
            .0
            .as_ref()
            .is_none_or(|cached| !cached.0.will_wake(waker))
        {
            let pool = waker_executor.0.as_ref().map(|handle| handle.0.clone());
            let relay = RelayWaker {
                waker: Some(waker.clone()),
                is_pending: AtomicBool::new(false),
                pool,
            };
            self.0 = Some(Box::new((waker.clone(), Waker::from(Arc::new(relay)))));
        }
        match &self.0 {
            Some(cached) => &cached.1,
            None => waker,
        }
    }
}

impl<F: Future + Unpin> Future for WithWakerProxy<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self {
            future,
            waker_executor,
            waker_proxy,
        } = &mut *self;
        let waker = waker_proxy.waker(waker_executor, cx.waker());
        Pin::new(future).poll(&mut Context::from_waker(waker))
    }
}

/// Takes the place of one task's waker.
struct RelayWaker {
    /// Present until this is dropped.
    waker: Option<Waker>,
    /// Whether a call is due that has not begun: another call would have no effect.
    is_pending: AtomicBool,
    pool: Option<Arc<WakerPool>>,
}

impl Wake for RelayWaker {
    fn wake(self: Arc<Self>) {
        if self.is_pending.swap(true, Ordering::AcqRel) {
            return;
        }
        match self.pool.clone() {
            Some(pool) => pool.push(WakerCall::Wake(self)),
            None => WakerCall::Wake(self).run(),
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Self::wake(self.clone());
    }
}

impl Drop for RelayWaker {
    fn drop(&mut self) {
        // Dropping a waker runs its owner's code, too.
        if let (Some(waker), Some(pool)) = (self.waker.take(), &self.pool)
            && PROTECTED.get()
        {
            pool.push(WakerCall::Drop(waker));
        }
    }
}

/// A call of a waker.
enum WakerCall {
    Wake(Arc<RelayWaker>),
    Drop(Waker),
}

impl WakerCall {
    fn run(self) {
        let call = || match self {
            Self::Wake(relay) => {
                relay.is_pending.store(false, Ordering::Release);
                if let Some(waker) = &relay.waker {
                    waker.wake_by_ref();
                }
            }
            Self::Drop(waker) => drop(waker),
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
            // The payload of the panic may panic again when it is dropped.
            std::mem::forget(panic);
        }
    }
}

/// The threads of one client that call wakers.
struct WakerPool {
    fork_detector: ForkDetector,
    state: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Default)]
struct PoolState {
    calls: VecDeque<WakerCall>,
    /// The call that is being made, and since when. A thread whose call is no longer this one has
    /// been replaced.
    current: Option<(u64, Instant)>,
    made: u64,
    /// The number of threads that wait, and of those that have been started and do not wait yet.
    idle: usize,
    starting: usize,
    closed: bool,
}

impl WakerPool {
    /// Queues a call. Never blocks on a waker, never panics.
    fn push(self: &Arc<Self>, call: WakerCall) {
        // A forked child does not have the threads, and the lock may be held for ever there.
        if self.fork_detector.has_forked() {
            return std::mem::forget(call);
        }
        let mut state = self.lock();
        state.calls.push_back(call);
        if state.idle > 0 {
            self.changed.notify_one();
            return;
        }
        if state.current.is_none() && state.starting == 0 && !self.start(&mut state) {
            // No thread is available: a call in this one is better than none.
            let calls = std::mem::take(&mut state.calls);
            drop(state);
            calls.into_iter().for_each(WakerCall::run);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the thread ends when it is idle")]
    fn start(self: &Arc<Self>, state: &mut PoolState) -> bool {
        let pool = self.clone();
        let thread = std::thread::Builder::new().name("distlock-wake".into());
        let started = thread.spawn(move || pool.run()).is_ok();
        state.starting += usize::from(started);
        started
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the idle time is real time, even if tokio's clock is paused"
    )]
    fn run(self: &Arc<Self>) {
        let mut state = self.lock();
        state.starting -= 1;
        loop {
            if state.calls.is_empty() {
                if state.closed || state.idle >= MAX_IDLE_THREADS {
                    return;
                }
                let timed_out;
                (state, timed_out) = self.wait(state, IDLE_TIMEOUT);
                if timed_out && state.calls.is_empty() {
                    return;
                }
                continue;
            }
            if let Some((_, since)) = state.current {
                let left = STUCK_AFTER.saturating_sub(since.elapsed());
                if !left.is_zero() {
                    (state, _) = self.wait(state, left);
                    continue;
                }
            }
            let Some(call) = state.calls.pop_front() else {
                continue;
            };
            state.made += 1;
            let number = state.made;
            state.current = Some((number, Instant::now()));
            if state.idle + state.starting == 0 {
                self.start(&mut state);
            }
            drop(state);
            call.run();
            state = self.lock();
            if state.current.is_some_and(|(current, _)| current == number) {
                state.current = None;
            }
        }
    }

    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, PoolState>,
        limit: Duration,
    ) -> (MutexGuard<'a, PoolState>, bool) {
        state.idle += 1;
        let waited = self.changed.wait_timeout(state, limit);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        (state, timeout.timed_out())
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        if !self.0.fork_detector.has_forked() {
            self.0.lock().closed = true;
            self.0.changed.notify_all();
        }
    }
}

impl fmt::Debug for WakerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakerPool").finish_non_exhaustive()
    }
}

thread_local! {
    /// Whether this thread keeps leases alive, or executes other tasks' calls: then it must not run
    /// the application's code.
    static PROTECTED: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that keeps leases alive, or executes other tasks' calls.
pub fn mark_lease_thread() {
    PROTECTED.set(true);
}

/// Reports whether this thread must not run the application's code.
pub fn is_lease_thread() -> bool {
    PROTECTED.get()
}

/// The wakers of tokio's own tasks and threads (of a task, of a thread that blocks on a future, and
/// of a runtime that does), and those of this library that run no application code. Lock-free,
/// because every call reads it.
static TRUSTED: [OnceLock<RawWakerVTable>; 8] = [const { OnceLock::new() }; 8];

/// Resolves at once. Its caller knows that the waker that polls it is one of tokio's: wakers like
/// it are called directly from now on, which spares their tasks a detour.
pub fn trust_current_waker() -> impl Future<Output = ()> + Send {
    std::future::poll_fn(|cx| {
        trust(cx.waker());
        Poll::Ready(())
    })
}

/// Trusts a waker of which the caller knows that it runs no application code: wakers like it are
/// called directly from now on.
pub fn trust(waker: &Waker) {
    if !is_trusted(waker) {
        let vtable = *waker.vtable();
        // If all slots are taken, the wakers take the detour.
        let _ = TRUSTED.iter().find(|slot| slot.set(vtable).is_ok());
    }
}

fn is_trusted(waker: &Waker) -> bool {
    let cached = TRUSTED.iter().map_while(OnceLock::get);
    cached.into_iter().any(|vtable| vtable == waker.vtable())
}

#[cfg(test)]
mod tests;
