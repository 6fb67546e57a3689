//! The thread that has the file: SQLite waits for disks and for other processes, which no runtime should.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use tokio::sync::oneshot;

use super::store::Store;
use crate::engine::process::Process;
use crate::engine::{Answer, Cause, Failure};

/// A thread with a [`Store`]. It ends when this is dropped and what was asked is done.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    process: Process,
}

type Job = Box<dyn FnOnce(&mut Store) + Send>;

impl Worker {
    /// Starts the thread, which opens the file.
    #[expect(clippy::disallowed_methods, reason = "the engine's own thread")]
    pub(super) async fn start(
        open: impl FnOnce() -> Result<Store, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (opened, outcome) = oneshot::channel();
        let thread = std::thread::Builder::new().name("distlock-file".into());
        let started = thread.spawn(move || {
            let mut store = match open() {
                Ok(store) => store,
                Err(failure) => return drop(opened.send(Err(failure))),
            };
            // Whoever wanted it may have gone: then nothing comes, and this ends.
            drop(opened.send(Ok(())));
            for job in inbox {
                // A thread that ended would have us taken for gone while guards are valid. What a transaction had
                // begun is taken back, and its asker hears that there is no answer.
                let _ = catch_unwind(AssertUnwindSafe(|| job(&mut store)));
            }
            store.leave();
        });
        started.map_err(|error| Failure::new(Cause::Unreachable, error.to_string()))?;
        outcome.await.unwrap_or_else(|_| Err(gone()))?;
        let process = Process::current();
        let jobs = Some(jobs);
        Ok(Self { jobs, process })
    }

    /// Has the thread do this, and hears what it came to. Dropping that leaves it done all the same.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, Failure> + Send + 'static,
    ) -> Answer<Result<T, Failure>> {
        let (done, outcome) = oneshot::channel();
        self.tell(move |store| {
            // Nobody may be there to hear it.
            let _ = done.send(work(store));
        });
        Box::pin(async move { outcome.await.unwrap_or_else(|_| Err(gone())) })
    }

    /// Has the thread do this.
    pub(super) fn tell(&self, work: impl FnOnce(&mut Store) + Send + 'static) {
        // A forked child has no such thread; one that has ended drops it, which its asker hears.
        if let Some(jobs) = self.jobs.as_ref().filter(|_| !self.process.has_forked()) {
            let _ = jobs.send(Box::new(work));
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
