//! Catches the panics of background tasks, so that no task ends without its owner's knowledge.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::events::Events;

/// The pause before a task that has panicked starts again: one that panics at every start leaves
/// time for everything else.
pub const RESTART_DELAY: Duration = Duration::from_millis(50);

/// The message of a task's panic.
#[derive(Debug)]
pub struct Panicked(pub String);

impl Panicked {
    /// Extracts the message from the payload of a panic.
    pub fn from_payload(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        // The payload may panic again when it is dropped.
        std::mem::forget(panic);
        Self(text.unwrap_or_else(|| "no message".into()))
    }

    /// Logs that a task has panicked.
    pub fn report(self, task: &'static str, events: &Events) {
        let Self(why) = self;
        events.emit(tracing::Level::ERROR, move || {
            tracing::error!(target: "distlock::client", task, error = why, "a background task panicked; please report this");
        });
    }
}

/// The panics of a task that starts again after each of them. A panic that repeats the one before
/// is not logged again.
#[derive(Debug)]
pub struct Restarts<'a> {
    task: &'static str,
    events: &'a Events,
    last: Option<String>,
}

impl<'a> Restarts<'a> {
    /// Creates a record without panics.
    pub const fn new(task: &'static str, events: &'a Events) -> Self {
        Self {
            task,
            events,
            last: None,
        }
    }

    /// Logs the panic unless it repeats the one before. Returns whether it was logged.
    pub fn report(&mut self, panicked: Panicked) -> bool {
        if self.last.as_ref() == Some(&panicked.0) {
            return false;
        }
        self.last = Some(panicked.0.clone());
        panicked.report(self.task, self.events);
        true
    }

    /// Logs the panic as [`report`](Self::report) does, and resolves when the task may start again.
    #[expect(
        clippy::disallowed_methods,
        reason = "the task runs on a thread of the library"
    )]
    pub async fn report_and_wait(&mut self, panicked: Panicked) {
        self.report(panicked);
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

/// Drives a future to its end, or to its panic. The data that the future borrows must be consistent
/// after a panic, too.
///
/// # Errors
///
/// If it has panicked.
pub async fn catch_panic<F>(future: F) -> Result<F::Output, Panicked>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    std::future::poll_fn(move |cx| {
        let poll = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match poll {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(Panicked::from_payload(panic))),
        }
    })
    .await
}

/// Calls a function and catches its panic, as [`catch_panic`] does for a future.
///
/// # Errors
///
/// If it has panicked.
pub fn catch_panic_sync<T>(function: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(function)).map_err(Panicked::from_payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::time::{Instant, timeout};

    #[expect(clippy::disallowed_methods, reason = "the clock is paused")]
    #[tokio::test(start_paused = true)]
    async fn restart_delay_limits_a_task_that_always_panics() {
        let (events, starts) = (Events::inline(), AtomicU32::new(0));
        let start = async || {
            starts.fetch_add(1, Ordering::Relaxed);
            assert!(starts.load(Ordering::Relaxed) == 0, "at every start");
        };
        let task = async {
            let mut restarts = Restarts::new("test", &events);
            while let Err(panicked) = catch_panic(start()).await {
                restarts.report_and_wait(panicked).await;
            }
        };
        let begun = Instant::now();
        assert!(
            timeout(20 * RESTART_DELAY, task).await.is_err(),
            "it goes on"
        );
        assert_eq!(begun.elapsed(), 20 * RESTART_DELAY);
        assert!(starts.into_inner() <= 21);
    }

    #[test]
    fn a_panic_that_repeats_the_one_before_is_logged_once() {
        let events = Events::inline();
        let mut restarts = Restarts::new("test", &events);
        let logged = ["a", "a", "b", "b", "a"].map(|why| restarts.report(Panicked(why.into())));
        assert_eq!(logged, [true, false, true, false, true]);
    }
}
