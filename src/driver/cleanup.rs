//! Finishes work that has no waiting caller: releases of dropped guards, and requests whose outcome is unknown.
//!
//! Jobs are sent to a task beside the watchdog, so that they outlive the caller and its runtime; a store that replies
//! without I/O needs no task. Every request of a job may be repeated: counts are absolute and an undone request stays
//! undone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};

use super::cleanup_job::CleanupJob;
use super::undo_on_drop::InFlight;
use crate::engine::events::Events;
use crate::engine::supervise::Panicked;
use crate::engine::tag_simulated_process;

/// How many jobs send requests to the store at the same time.
const MAX_CONCURRENT_JOBS: usize = 64;

/// The job queue of the task, and the amount of its unfinished work.
#[derive(Debug, Default)]
pub(crate) struct Cleanup {
    inbox: Mutex<Option<mpsc::UnboundedSender<CleanupEntry>>>,
    open: Arc<OpenCount>,
    /// Calls in flight. A call whose future is dropped becomes a job.
    calls: Arc<OpenCount>,
}

#[derive(Debug, Default)]
struct OpenCount {
    count: AtomicUsize,
    idle: Notify,
}

/// A job, which counts as open for as long as this lives.
#[derive(Debug)]
pub(super) struct CleanupEntry {
    job: CleanupJob,
    in_flight: Option<InFlight>,
    open: WorkGuard,
}

/// Counts as one open job, release or call until this is dropped.
#[derive(Debug)]
pub(super) struct WorkGuard(Arc<OpenCount>);

impl Cleanup {
    /// Opens the job queue: from now on jobs go to the task that reads this receiver.
    pub(super) fn open(&self) -> mpsc::UnboundedReceiver<CleanupEntry> {
        let (inbox, jobs) = mpsc::unbounded_channel();
        *self.lock() = Some(inbox);
        jobs
    }

    /// Adds a job. Never blocks, never fails, needs no runtime.
    pub(super) fn push(&self, job: CleanupJob) {
        self.push_after(job, None);
    }

    /// Adds a job that may turn out unnecessary once a request in flight gets its reply.
    pub(super) fn push_after(&self, job: CleanupJob, in_flight: Option<InFlight>) {
        let inbox = self.lock().clone();
        match inbox {
            Some(inbox) => {
                let entry = CleanupEntry {
                    job,
                    in_flight,
                    open: WorkGuard::new(&self.open),
                };
                // A task that has ended has no client left to clean up for.
                let _ = inbox.send(entry);
            }
            None => job.finish_now(),
        }
    }

    /// Counts a release as in flight for as long as the guard lives. Closing waits for releases as for jobs.
    pub(super) fn begin_release(&self) -> WorkGuard {
        WorkGuard::new(&self.open)
    }

    /// Counts a call as in flight whose outcome may have to be cleaned up, for as long as the guard lives.
    pub(super) fn begin_call(&self) -> WorkGuard {
        WorkGuard::new(&self.calls)
    }

    /// Resolves when no call is in flight any more: the cleanup that each call needs is a job by then.
    pub(super) async fn calls_finished(&self) {
        self.calls.idle().await;
    }

    /// Resolves when every job and every release is done.
    pub(super) async fn finished(&self) {
        self.open.idle().await;
    }

    pub(super) fn stop(&self) {
        self.lock().take();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<mpsc::UnboundedSender<CleanupEntry>>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the cleanup of one client. Ends when the client has gone and every job is done.
#[expect(clippy::disallowed_methods, reason = "the driver owns these tasks")]
pub(super) async fn run(
    jobs: &mut mpsc::UnboundedReceiver<CleanupEntry>,
    working: &mut JoinSet<()>,
    events: &Events,
) {
    // Bounded: renewals share this thread and connection, and must not queue behind many jobs.
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_JOBS));
    loop {
        tokio::select! {
            entry = jobs.recv() => match entry {
                Some(CleanupEntry { job, in_flight, open }) => {
                    let permits = permits.clone();
                    working.spawn(tag_simulated_process(async move {
                        job.finish(in_flight, &permits).await;
                        // Named, so that it is moved into this future and dropped only now.
                        drop(open);
                    }));
                }
                None => break,
            },
            Some(ended) = working.join_next() => report_panic(ended, events),
        }
    }
    while let Some(ended) = working.join_next().await {
        report_panic(ended, events);
    }
}

/// Reports a panic that a job has not caught itself.
fn report_panic(ended: Result<(), JoinError>, events: &Events) {
    // A job that was cancelled has lost its runtime.
    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
        Panicked::from_payload(panic).report("cleanup", events);
    }
}

impl OpenCount {
    async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl WorkGuard {
    fn new(open: &Arc<OpenCount>) -> Self {
        open.count.fetch_add(1, Ordering::AcqRel);
        Self(open.clone())
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use tracing_subscriber::fmt;

    #[expect(clippy::disallowed_methods, reason = "a job of its own")]
    #[tokio::test]
    async fn a_panic_that_a_job_has_not_caught_is_reported() {
        // While there is one subscriber only, `tracing` asks the subscriber of the thread that first reaches an event, which may be
        // the thread of another test, and caches its answer for all threads. With a second subscriber it asks all of them.
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        let (mut log, writer) = std::io::pipe().expect("there is a pipe");
        let subscriber = fmt().with_writer(Mutex::new(writer)).finish();
        let subscriber = tracing::subscriber::set_default(subscriber);
        let (inbox, mut jobs) = mpsc::unbounded_channel();
        drop(inbox);
        let mut working = JoinSet::new();
        working.spawn(async { panic!("behind its end") });
        run(&mut jobs, &mut working, &Events::inline()).await;
        drop(subscriber);
        let mut text = String::new();
        log.read_to_string(&mut text).expect("it is text");
        assert!(
            text.contains("panicked") && text.contains("behind its end"),
            "{text}"
        );
    }
}
