//! The thread that has the file: SQLite waits for disks and for other processes, which no runtime should.

use std::collections::VecDeque;
use std::sync::mpsc;

use tokio::sync::oneshot;

use super::store::Store;
use crate::engine::events::Events;
use crate::engine::process::Process;
use crate::engine::supervise::caught_now;
use crate::engine::wakeups::protect_this_thread;
use crate::engine::{Answer, Cause, Failure};

/// A thread with a [`Store`]. It ends when this is dropped and what was asked is done.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<(Priority, Job)>>,
    process: Process,
}

type Job = Box<dyn FnOnce(&mut Store) + Send>;

/// Which of two queues a request waits in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Priority {
    /// Renewals and cleanup. They go first: behind a crowd of callers a renewal would come too late, and the crowd would
    /// cost its own client the locks that it holds. Callers are not starved: a hold has one renewal under way, and
    /// cleanup limits how much it asks at once.
    Background,
    /// Requests of callers, in the order of their arrival.
    Foreground,
}

/// The requests that have arrived and wait.
#[derive(Default)]
struct Queues {
    background: VecDeque<Job>,
    foreground: VecDeque<Job>,
}

impl Worker {
    /// Starts the thread, which opens the file.
    #[expect(clippy::disallowed_methods, reason = "the engine's own thread")]
    pub(super) async fn start(
        open: impl FnOnce() -> Result<Store, Failure> + Send + 'static,
        events: Events,
    ) -> Result<Self, Failure> {
        let (jobs, inbox) = mpsc::channel();
        let (opened, outcome) = oneshot::channel();
        let thread = std::thread::Builder::new().name("distlock-file".into());
        let started = thread.spawn(move || {
            protect_this_thread();
            let mut store = match open() {
                Ok(store) => store,
                Err(failure) => return drop(opened.send(Err(failure))),
            };
            // Whoever wanted it may have gone: then nothing comes, and this ends.
            drop(opened.send(Ok(())));
            let mut queues = Queues::default();
            while let Some(job) = queues.next(&inbox) {
                // A thread that ended would have us taken for gone while guards are valid. What a transaction had
                // begun is taken back, and its asker hears that there is no answer.
                if let Err(panicked) = caught_now(|| job(&mut store)) {
                    panicked.report("file", &events);
                }
            }
            store.leave();
        });
        started.map_err(|error| {
            let why = format!("no thread can be started: {error}");
            Failure::new(Cause::Unreachable, why)
        })?;
        outcome.await.unwrap_or_else(|_| Err(gone()))?;
        let process = Process::current();
        let jobs = Some(jobs);
        Ok(Self { jobs, process })
    }

    /// Has the thread do this, and hears what it came to. If the caller drops that before the work has begun, the work is
    /// skipped; work that has begun is finished.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        priority: Priority,
        work: impl FnOnce(&mut Store) -> Result<T, Failure> + Send + 'static,
    ) -> Answer<Result<T, Failure>> {
        let (done, outcome) = oneshot::channel();
        self.tell(priority, move |store| {
            if done.is_closed() {
                return;
            }
            // Nobody may be there to hear it.
            let _ = done.send(work(store));
        });
        Box::pin(async move { outcome.await.unwrap_or_else(|_| Err(gone())) })
    }

    /// Has the thread do this in any case.
    pub(super) fn tell(&self, priority: Priority, work: impl FnOnce(&mut Store) + Send + 'static) {
        // A forked child has no such thread; one that has ended drops it, which its asker hears.
        if let Some(jobs) = self.jobs.as_ref().filter(|_| !self.process.has_forked()) {
            let _ = jobs.send((priority, Box::new(work)));
        }
    }
}

impl Queues {
    /// The next job. Waits for one if there is none; `None` if none can come any more.
    fn next(&mut self, inbox: &mpsc::Receiver<(Priority, Job)>) -> Option<Job> {
        loop {
            // All that has arrived is sorted before one is chosen.
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

    fn push(&mut self, (priority, job): (Priority, Job)) {
        match priority {
            Priority::Background => self.background.push_back(job),
            Priority::Foreground => self.foreground.push_back(job),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // What a forked child has is a copy, perhaps of something locked by a thread it does not have.
        if self.process.has_forked() {
            std::mem::forget(self.jobs.take());
        }
    }
}

fn gone() -> Failure {
    Failure::new(Cause::Interrupted, "the thread with the file has ended")
}
