//! A thread of the library with a runtime of its own.

use std::io;
use std::thread::Builder;

use tokio::runtime::{self, Handle, Runtime};
#[cfg(feature = "blocking")]
use tokio::sync::oneshot;
#[cfg(feature = "blocking")]
use tokio::task::JoinHandle;

use crate::engine::waker_executor::{mark_lease_thread, trust_current_waker};

/// A thread for the work of callers that block. It ends when this is dropped, however far its work is.
#[cfg(feature = "blocking")]
#[derive(Debug)]
pub(crate) struct RuntimeThread {
    runtime: Handle,
    _end: oneshot::Sender<()>,
}

#[cfg(feature = "blocking")]
impl RuntimeThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Fails as [`start`] does.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (_end, ended) = oneshot::channel();
        let main = async {
            let _ = ended.await;
        };
        let runtime = start(name, main)?;
        Ok(Self { runtime, _end })
    }

    /// Runs this work on the thread.
    #[expect(
        clippy::disallowed_methods,
        reason = "the caller waits for the end of the task"
    )]
    pub(crate) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(work)
    }
}

/// Starts a thread that drives `main`, and the tasks that are spawned on its runtime meanwhile.
///
/// # Errors
///
/// Fails if the system has no thread, or no file descriptor, for it.
#[expect(clippy::disallowed_methods, reason = "the library owns this thread")]
pub(crate) fn start(
    name: &str,
    main: impl Future<Output = ()> + Send + 'static,
) -> io::Result<Handle> {
    start_with(name, main, |thread, run| thread.spawn(run).map(drop))
}

fn start_with(
    name: &str,
    main: impl Future<Output = ()> + Send + 'static,
    spawn: impl FnOnce(Builder, ThreadMain) -> io::Result<()>,
) -> io::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| with_context("no runtime can be started", &error))?;
    let handle = runtime.handle().clone();
    let mut unstarted = UnstartedRuntime(Some(runtime));
    let run: ThreadMain = Box::new(move || {
        let Some(runtime) = unstarted.0.take() else {
            return;
        };
        mark_lease_thread();
        // A thread that blocks on a future waits with this waker.
        runtime.handle().block_on(trust_current_waker());
        runtime.block_on(async {
            trust_current_waker().await;
            main.await;
        });
    });
    let started = spawn(Builder::new().name(name.into()), run);
    started.map_err(|error| with_context("no thread can be started", &error))?;
    Ok(handle)
}

fn with_context(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The work of a thread.
type ThreadMain = Box<dyn FnOnce() + Send>;

/// A runtime whose thread does not run yet. If the thread cannot be started this is dropped inside the caller's
/// runtime, where dropping a runtime panics.
struct UnstartedRuntime(Option<Runtime>);

impl Drop for UnstartedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_to_spawn_a_thread_is_reported() {
        let refused = |_, run: ThreadMain| {
            drop(run);
            Err(io::ErrorKind::WouldBlock.into())
        };
        let error = start_with("test", async {}, refused).expect_err("there is no thread");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(
            error.to_string().starts_with("no thread can be started: "),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_thread_drives_its_future() {
        let (done, is_done) = tokio::sync::oneshot::channel();
        let main = async {
            let _ = done.send(42);
        };
        start("test", main).expect("a thread can be started");
        assert_eq!(is_done.await, Ok(42));
    }
}
