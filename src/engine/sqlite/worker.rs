//! The thread that owns the file: SQLite waits for disks and for other processes, and no runtime
//! should.

use std::collections::VecDeque;
use std::sync::mpsc;

use tokio::sync::oneshot;

use super::store::SqliteStore;
use crate::engine::events::Events;
use crate::engine::fork_detector::ForkDetector;
use crate::engine::supervise::catch_panic_sync;
use crate::engine::waker_executor::mark_lease_thread;
use crate::engine::{BoxFuture, StoreError, StoreErrorKind};

/// A thread with a [`SqliteStore`]. It ends when this is dropped and all jobs are done.
#[derive(Debug)]
pub(super) struct FileWorker {
    jobs: Option<mpsc::Sender<(Priority, FileJob)>>,
    fork_detector: ForkDetector,
}

type FileJob = Box<dyn FnOnce(&mut SqliteStore) + Send>;

/// The queue in which a request waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Priority {
    /// Renewals and cleanup. They go first: behind a crowd of callers a renewal would come too
    /// late, and the crowd would cost its own client the locks that it holds. Callers are not
    /// starved: a hold has one renewal under way, and cleanup limits how many requests it sends at
    /// once.
    Background,
    /// Requests of callers, in the order of their arrival.
    Foreground,
}

/// The jobs that have arrived and wait.
#[derive(Default)]
struct JobQueues {
    background: VecDeque<FileJob>,
    foreground: VecDeque<FileJob>,
}

impl FileWorker {
    /// Starts the thread, which opens the file.
    #[expect(clippy::disallowed_methods, reason = "the engine owns this thread")]
    pub(super) async fn start(
        open: impl FnOnce() -> Result<SqliteStore, StoreError> + Send + 'static,
        events: Events,
    ) -> Result<Self, StoreError> {
        let (jobs, inbox) = mpsc::channel();
        let (opened, outcome) = oneshot::channel();
        let thread = std::thread::Builder::new().name("distlock-file".into());
        let started = thread.spawn(move || {
            mark_lease_thread();
            let mut store = match open() {
                Ok(store) => store,
                Err(failure) => return drop(opened.send(Err(failure))),
            };
            // The caller may have gone: then no job arrives, and the thread ends.
            drop(opened.send(Ok(())));
            let mut queues = JobQueues::default();
            while let Some(job) = queues.next(&inbox) {
                // If the thread ended, other clients would take this one for gone while its guards
                // are valid. After a panic the transaction is rolled back, and its caller gets an
                // error.
                if let Err(panicked) = catch_panic_sync(|| job(&mut store)) {
                    panicked.report("file", &events);
                }
            }
            store.close();
        });
        started.map_err(|error| {
            let why = format!("no thread can be started: {error}");
            StoreError::new(StoreErrorKind::Unreachable, why)
        })?;
        outcome.await.unwrap_or_else(|_| Err(worker_ended()))?;
        let fork_detector = ForkDetector::current();
        let jobs = Some(jobs);
        Ok(Self {
            jobs,
            fork_detector,
        })
    }

    /// Runs this job on the thread and returns its result. If the caller drops the future before
    /// the job has begun, the job is skipped; a job that has begun is finished.
    pub(super) fn run<T: Send + 'static>(
        &self,
        priority: Priority,
        work: impl FnOnce(&mut SqliteStore) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<Result<T, StoreError>> {
        let (done, outcome) = oneshot::channel();
        self.spawn(priority, move |store| {
            if done.is_closed() {
                return;
            }
            // The caller may have gone.
            let _ = done.send(work(store));
        });
        Box::pin(async move { outcome.await.unwrap_or_else(|_| Err(worker_ended())) })
    }

    /// Runs this job on the thread in any case.
    pub(super) fn spawn(
        &self,
        priority: Priority,
        work: impl FnOnce(&mut SqliteStore) + Send + 'static,
    ) {
        // A forked child does not have the thread. A thread that has ended drops the job, and its
        // caller gets an error.
        if let Some(jobs) = self
            .jobs
            .as_ref()
            .filter(|_| !self.fork_detector.has_forked())
        {
            let _ = jobs.send((priority, Box::new(work)));
        }
    }
}

impl JobQueues {
    /// Returns the next job. Waits for one if there is none; `None` if none can come any more.
    fn next(&mut self, inbox: &mpsc::Receiver<(Priority, FileJob)>) -> Option<FileJob> {
        loop {
            // All jobs that have arrived are sorted before one is chosen.
            while let Ok(arrived) = inbox.try_recv() {
                self.push(arrived);
            }
            let job = self.background.pop_front();
            if let Some(job) = job.or_else(|| self.foreground.pop_front()) {
                return Some(job);
            }
            self.push(inbox.recv().ok()?);
        }
    }

    fn push(&mut self, (priority, job): (Priority, FileJob)) {
        match priority {
            Priority::Background => self.background.push_back(job),
            Priority::Foreground => self.foreground.push_back(job),
        }
    }
}

impl Drop for FileWorker {
    fn drop(&mut self) {
        // A forked child has a copy, perhaps of something locked by a thread that it does not have.
        if self.fork_detector.has_forked() {
            std::mem::forget(self.jobs.take());
        }
    }
}

fn worker_ended() -> StoreError {
    StoreError::new(
        StoreErrorKind::Interrupted,
        "the thread that uses the file has ended",
    )
}
