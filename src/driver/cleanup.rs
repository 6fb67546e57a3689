//! Finishes what nobody waits for: releases of dropped guards, and requests whose outcome is unknown.
//!
//! Jobs are sent to a task beside the watchdog, so that they outlive the caller and its runtime; a
//! store that answers on the spot needs no task. Everything a job sends may be sent again: counts are
//! absolute and an undone request stays undone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::cleanup_job::CleanupJob;
use super::undo_on_drop::InFlight;
use crate::engine::in_process;

/// How many jobs ask the store at once.
const MAX_CONCURRENT_JOBS: usize = 64;

/// The inbox of the task, and how much it has still to do.
#[derive(Debug, Default)]
pub(crate) struct Cleanup {
    inbox: Mutex<Option<mpsc::UnboundedSender<CleanupEntry>>>,
    open: Arc<OpenCount>,
    /// Calls that are under way. A call whose future is dropped becomes a job.
    calls: Arc<OpenCount>,
}

#[derive(Debug, Default)]
struct OpenCount {
    count: AtomicUsize,
    idle: Notify,
}

/// A job, and the note that it is open for as long as this lives.
#[derive(Debug)]
pub(super) struct CleanupEntry {
    job: CleanupJob,
    in_flight: Option<InFlight>,
    open: WorkGuard,
}

/// Counts as one open job, release or call until the ticket is dropped.
#[derive(Debug)]
pub(super) struct WorkGuard(Arc<OpenCount>);

impl Cleanup {
    /// From now on jobs go to the task that reads this.
    pub(super) fn open(&self) -> mpsc::UnboundedReceiver<CleanupEntry> {
        let (inbox, jobs) = mpsc::unbounded_channel();
        *self.lock() = Some(inbox);
        jobs
    }

    /// Never blocks, never fails, needs no runtime.
    pub(super) fn push(&self, job: CleanupJob) {
        self.push_after(job, None);
    }

    /// The same for a job that may turn out needless once a request that is still under way is answered.
    pub(super) fn push_after(&self, job: CleanupJob, in_flight: Option<InFlight>) {
        let inbox = self.lock().clone();
        match inbox {
            Some(inbox) => {
                let entry = CleanupEntry {
                    job,
                    in_flight,
                    open: WorkGuard::new(&self.open),
                };
                // A task that has ended has nobody left to clean up for.
                let _ = inbox.send(entry);
            }
            None => job.finish_now(),
        }
    }

    /// A release is under way for as long as the ticket lives. Closing waits for releases as for jobs.
    pub(super) fn begin_release(&self) -> WorkGuard {
        WorkGuard::new(&self.open)
    }

    /// A call is under way whose outcome may have to be cleaned up, for as long as the ticket lives.
    pub(super) fn begin_call(&self) -> WorkGuard {
        WorkGuard::new(&self.calls)
    }

    /// Resolves when no call is under way any more: what each leaves to be cleaned up is a job by then.
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

/// The task of one client. Ends when the client has gone and every job is done.
#[expect(clippy::disallowed_methods, reason = "the driver's own tasks")]
pub(super) async fn run(
    jobs: &mut mpsc::UnboundedReceiver<CleanupEntry>,
    working: &mut JoinSet<()>,
) {
    // Bounded: renewals share this thread and connection, and must not stand behind a crowd.
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_JOBS));
    loop {
        tokio::select! {
            entry = jobs.recv() => match entry {
                Some(CleanupEntry { job, in_flight, open }) => {
                    let permits = permits.clone();
                    working.spawn(in_process(async move {
                        job.finish(in_flight, &permits).await;
                        // Named, so that it is moved in here and goes only now.
                        drop(open);
                    }));
                }
                None => break,
            },
            Some(_) = working.join_next() => {}
        }
    }
    while working.join_next().await.is_some() {}
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
