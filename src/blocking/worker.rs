//! The thread that runs blocking calls.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::Error;
use crate::driver::thread;

/// A thread with a runtime. A runtime that ran only during a call would let leases expire between calls.
#[derive(Debug)]
pub(super) struct Worker {
    thread: Option<thread::RuntimeThread>,
    /// The process that has the thread; a forked child does not have it.
    pid: u32,
}

impl Worker {
    pub(super) fn start() -> Result<Self, Error> {
        let thread = thread::RuntimeThread::start("distlock-blocking");
        let thread = thread.map_err(|error| Error::Unavailable {
            name: "a thread for blocking calls".into(),
            detail: error.to_string(),
        })?;
        Ok(Self {
            thread: Some(thread),
            pid: std::process::id(),
        })
    }

    /// Runs `work` on the worker and waits for it without a blocking call of the runtime: that would panic inside
    /// another runtime. A panic of the work resumes in the caller, and the worker keeps running.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (_, result) = self.start_work(work)?;
        result.recv().map(resumed).map_err(|_| closed(false))
    }

    /// Does the same for at most `limit`; after that `work` is dropped wherever it is.
    pub(super) fn run_for<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let (task, result) = self.start_work(work)?;
        match result.recv_timeout(limit) {
            Ok(outcome) => Ok(Some(resumed(outcome))),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(closed(false)),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                task.abort();
                // If the work has just ended, its result must not be lost.
                Ok(result.recv().ok().map(resumed))
            }
        }
    }

    /// Starts the work on the worker; the result arrives in the channel.
    fn start_work<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<(JoinHandle<()>, mpsc::Receiver<TaskResult<T>>), Error> {
        if self.is_forked() {
            // No thread would ever run the work, and its holds belong to the parent.
            std::mem::forget(work);
            return Err(closed(true));
        }
        let Some(thread) = &self.thread else {
            return Err(closed(false));
        };
        let (done, result) = mpsc::sync_channel(1);
        let task = thread.begin(async move {
            // The caller is waiting at the other end.
            let _ = done.send(caught(work).await);
        });
        Ok((task, result))
    }

    fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.is_forked() {
            // The thread and its runtime belong to the parent: even their memory must not be freed here.
            std::mem::forget(self.thread.take());
        }
    }
}

/// The output of the work, or its panic.
type TaskResult<T> = Result<T, Box<dyn Any + Send>>;

fn resumed<T>(outcome: TaskResult<T>) -> T {
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Drives work to its end, or to its panic.
async fn caught<T>(work: impl Future<Output = T> + Send) -> TaskResult<T> {
    let mut work = pin!(work);
    std::future::poll_fn(move |cx| {
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

pub(super) fn closed(forked: bool) -> Error {
    let name = "all locks".into();
    Error::Closed { name, forked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_resumes_in_the_caller_and_the_next_call_is_executed() {
        let worker = Worker::start().expect("a thread can be started");
        let panics = |worker: &Worker| worker.run::<()>(async { panic!("the work panics") });
        for _ in 0..2 {
            let caught = catch_unwind(AssertUnwindSafe(|| panics(&worker)));
            let panic = caught.expect_err("it goes on here");
            assert_eq!(panic.downcast_ref(), Some(&"the work panics"));
            let limit = Duration::from_secs(20);
            let limited = || worker.run_for::<()>(limit, async { panic!("the work panics") });
            let caught = catch_unwind(AssertUnwindSafe(limited));
            assert!(caught.is_err(), "it goes on here as well");
            assert_eq!(worker.run(async { 42 }).ok(), Some(42));
        }
    }
}
