//! Events of background work, emitted where a subscriber that blocks or panics harms nothing else.
//!
//! A `tracing` subscriber is the application's code: it may wait for a full pipe, or panic because
//! its pipe is closed. So no task that keeps leases alive calls it, and no thread that executes
//! blocking calls. An event is a closure in a bounded queue; a thread that exists only while there
//! are events calls the closures one after the other.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Level;
use tracing::dispatcher::{self, Dispatch};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;

use super::fork_detector::ForkDetector;
use super::waker_executor::is_lease_thread;

/// How many events wait for a slow subscriber before further ones are dropped.
const CAPACITY: usize = 1024;

/// How long the thread waits for another event before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The emitter of the events of one client's background tasks, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct Events(Option<Arc<EmitterHandle>>);

/// Ends the emitter's thread with the last clone of [`Events`].
#[derive(Debug)]
struct EmitterHandle(Arc<Emitter>);

type EmitFn = Box<dyn FnOnce() + Send>;

struct Emitter {
    /// The subscriber that was current when the client connected; `None` for the global default at
    /// the time of the event.
    dispatch: Option<Dispatch>,
    fork_detector: ForkDetector,
    queue: Mutex<EmitQueue>,
    pushed: Condvar,
    drained: Notify,
}

#[derive(Default)]
struct EmitQueue {
    events: VecDeque<EmitFn>,
    /// The number of events that found the queue full since an event was last emitted.
    dropped: u64,
    /// Whether the thread exists, and whether it is calling the subscriber.
    running: bool,
    emitting: bool,
    closed: bool,
}

impl Events {
    /// Creates an emitter in the caller's thread: for a store whose clock may be paused, and whose
    /// background work shares the caller's runtime.
    pub const fn inline() -> Self {
        Self(None)
    }

    /// Creates an emitter with a thread of its own, for the subscriber that is current here and
    /// now.
    pub fn queued() -> Self {
        let dispatch = dispatcher::get_default(Clone::clone);
        // A subscriber that is installed later is used as well.
        let dispatch = Some(dispatch).filter(|dispatch| !dispatch.is::<NoSubscriber>());
        Self(Some(Arc::new(EmitterHandle(Arc::new(Emitter {
            dispatch,
            fork_detector: ForkDetector::current(),
            queue: Mutex::default(),
            pushed: Condvar::new(),
            drained: Notify::new(),
        })))))
    }

    /// Runs `event`, which is to emit one event of this level. Never panics, and never blocks on
    /// the subscriber of a queued emitter.
    pub fn emit(&self, level: Level, event: impl FnOnce() + Send + 'static) {
        // Only the subscriber's own code knows whether it wants the event; but most programs want
        // no events of low levels at all, and these two checks find that out without calling it.
        let wanted = match dispatcher::has_been_set() {
            true => level <= LevelFilter::current(),
            false => level <= Level::INFO,
        };
        match &self.0 {
            _ if !wanted => {}
            Some(handle) => handle.0.push(Box::new(event)),
            None => call_subscriber(event),
        }
    }

    /// Returns where a call emits its events: `None` for here, among the spans of its caller, or
    /// the queue, if a thread of the library executes the call.
    pub fn deferred_in_call(&self) -> Option<&Self> {
        is_lease_thread().then_some(self)
    }

    /// Resolves when all events so far have been emitted or dropped.
    pub async fn flushed(&self) {
        let Some(EmitterHandle(emitter)) = self.0.as_deref() else {
            return;
        };
        if emitter.fork_detector.has_forked() {
            return;
        }
        loop {
            let drained = emitter.drained.notified();
            if emitter.lock().is_idle() {
                return;
            }
            drained.await;
        }
    }
}

impl EmitQueue {
    fn is_idle(&self) -> bool {
        self.events.is_empty() && !self.emitting
    }
}

impl Emitter {
    #[expect(clippy::disallowed_methods, reason = "the emitter owns this thread")]
    fn push(self: &Arc<Self>, event: EmitFn) {
        // A forked child does not have the thread, and the lock may be held for ever there.
        if self.fork_detector.has_forked() {
            return;
        }
        let mut queue = self.lock();
        if queue.events.len() >= CAPACITY {
            queue.dropped += 1;
            return;
        }
        queue.events.push_back(event);
        if queue.running {
            self.pushed.notify_one();
            return;
        }
        let emitter = self.clone();
        let thread = std::thread::Builder::new().name("distlock-events".into());
        match thread.spawn(move || emitter.run()) {
            Ok(_) => queue.running = true,
            // The next event tries again to start the thread.
            Err(_) => {
                queue.events.pop_back();
                queue.dropped += 1;
            }
        }
    }

    fn run(&self) {
        let mut queue = self.lock();
        loop {
            if queue.events.is_empty() {
                let idle = |queue: &mut EmitQueue| queue.events.is_empty() && !queue.closed;
                let waited = self.pushed.wait_timeout_while(queue, IDLE_TIMEOUT, idle);
                (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
            let Some(event) = queue.events.pop_front() else {
                queue.running = false;
                return;
            };
            let dropped = std::mem::take(&mut queue.dropped);
            queue.emitting = true;
            drop(queue);
            if dropped > 0 {
                let report = || tracing::warn!(target: "distlock::client", dropped, "events were dropped: the subscriber is slow");
                self.emit(report);
            }
            self.emit(event);
            queue = self.lock();
            queue.emitting = false;
            if queue.events.is_empty() {
                self.drained.notify_waiters();
            }
        }
    }

    fn emit(&self, event: impl FnOnce()) {
        call_subscriber(|| match &self.dispatch {
            Some(dispatch) => dispatcher::with_default(dispatch, event),
            None => event(),
        });
    }

    fn lock(&self) -> MutexGuard<'_, EmitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EmitterHandle {
    fn drop(&mut self) {
        if !self.0.fork_detector.has_forked() {
            self.0.lock().closed = true;
            self.0.pushed.notify_one();
        }
    }
}

impl fmt::Debug for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter").finish_non_exhaustive()
    }
}

/// Emits an event of a call, see [`Events::deferred_in_call`]. The values are evaluated only if the
/// event is wanted, or is queued.
macro_rules! emit_in_call {
    ($events:expr, $target:literal, $level:ident, { $($field:ident: $value:expr),+ $(,)? }, $message:literal) => {
        match $events.deferred_in_call() {
            None => tracing::event!(target: $target, tracing::Level::$level, $($field = $value,)+ $message),
            Some(events) => {
                $(let $field = $value;)+
                events.emit(tracing::Level::$level, move || {
                    tracing::event!(target: $target, tracing::Level::$level, $($field,)+ $message);
                });
            }
        }
    };
}
pub(crate) use emit_in_call;

/// Calls the subscriber's code and catches its panics.
fn call_subscriber(event: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(event)) {
        // The payload of the panic may panic again when it is dropped.
        std::mem::forget(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn events_beyond_the_capacity_are_dropped_and_counted() {
        let events = Events::queued();
        let (begun, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        events.emit(Level::WARN, move || {
            let _ = begun.send(());
            let _ = released.recv();
        });
        has_begun.recv_timeout(PATIENCE).expect("it is called");
        let emitted = Arc::new(Mutex::new(0));
        for _ in 0..CAPACITY + 7 {
            let emitted = emitted.clone();
            events.emit(Level::WARN, move || *emitted.lock().unwrap() += 1);
        }
        let emitter = &events.0.as_ref().unwrap().0;
        assert_eq!(emitter.lock().dropped, 7);
        release.send(()).unwrap();
        events.flushed().await;
        assert_eq!(*emitted.lock().unwrap(), CAPACITY);
        assert_eq!(emitter.lock().dropped, 0, "reported");
    }

    #[tokio::test]
    async fn an_event_after_a_panic_is_emitted() {
        for events in [Events::queued(), Events::inline()] {
            let (emit, emitted) = mpsc::channel();
            events.emit(Level::WARN, || panic!("a subscriber panics"));
            events.emit(Level::WARN, move || emit.send(()).unwrap());
            emitted.recv_timeout(PATIENCE).expect("it is emitted");
        }
    }
}
