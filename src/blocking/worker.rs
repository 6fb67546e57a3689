//! The thread that carries out blocking calls.

use std::sync::mpsc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::Error;

/// A runtime with one worker thread. A runtime that only ran while somebody waits would let leases
/// lapse between calls.
#[derive(Debug)]
pub(super) struct Worker {
    runtime: Option<tokio::runtime::Runtime>,
    /// The process that has the thread; a forked child has not.
    pid: u32,
}

impl Worker {
    pub(super) fn start() -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("distlock-blocking")
            .enable_all()
            .build()
            .map_err(|error| Error::Unavailable {
                name: "a thread for blocking calls".into(),
                detail: error.to_string(),
            })?;
        Ok(Self {
            runtime: Some(runtime),
            pid: std::process::id(),
        })
    }

    /// Carries out `work` on the worker and waits for it, without a runtime's own blocking calls:
    /// those panic inside another runtime.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (_, result) = self.start_work(work)?;
        result.recv().map_err(|_| closed(false))
    }

    /// The same for at most so long: then `work` is dropped wherever it is.
    pub(super) fn run_for<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let (task, result) = self.start_work(work)?;
        match result.recv_timeout(limit) {
            Ok(value) => Ok(Some(value)),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(closed(false)),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                task.abort();
                // If it has just ended, its result must not be lost.
                Ok(result.recv().ok())
            }
        }
    }

    /// Has the worker begin; the result comes out of the channel.
    fn start_work<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<(JoinHandle<()>, mpsc::Receiver<T>), Error> {
        if self.is_forked() {
            // Nobody would ever carry it out, and what it holds is the parent's.
            std::mem::forget(work);
            return Err(closed(true));
        }
        let Some(runtime) = &self.runtime else {
            return Err(closed(false));
        };
        let (done, result) = mpsc::sync_channel(1);
        let task = runtime.spawn(async move {
            // The caller is waiting at the other end.
            let _ = done.send(work.await);
        });
        Ok((task, result))
    }

    fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        if self.is_forked() {
            // Its threads are the parent's: not even to be waited for.
            std::mem::forget(runtime);
        } else {
            // Dropping a runtime inside another one panics; this does not wait.
            runtime.shutdown_background();
        }
    }
}

pub(super) fn closed(forked: bool) -> Error {
    let name = "all locks".into();
    Error::Closed { name, forked }
}
