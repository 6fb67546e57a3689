//! A simulated network and clock, for this project's own tests. Its API is not stable.
//!
//! A client that is built with [`ClientBuilder::simulated`](crate::ClientBuilder::simulated) opens
//! its connections with [`Host::connect`], reads the time from [`Host::now`], and runs its
//! background work on the caller's runtime, whose time a test may pause. Everything else is the
//! code that every client runs.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(distlock_planted)]
pub use crate::planted::{Bug, active, bugs, was_reached};

/// The byte stream of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The future that [`Host::connect`] returns.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// The machine that a client runs on: its network and its clock.
pub trait Host: fmt::Debug + Send + Sync {
    /// Opens a connection to a server.
    fn connect(&self, host: &str, port: u16) -> Connecting;

    /// Returns the time since the machine started.
    fn now(&self) -> Duration;
}

/// A process of a simulated machine, which can be stopped and continued, as by SIGSTOP and SIGCONT.
pub trait Process: fmt::Debug + Send + Sync {
    /// Reports whether the process runs. If not, the waker is woken when it continues.
    fn is_running(&self, waker: &Waker) -> bool;
}

/// A task of a simulated process: it makes no progress while the process is stopped, and tasks that the library spawns
/// from it belong to the same process.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Task<F> {
    /// `None` for a task outside of every simulated process.
    process: Option<Arc<dyn Process>>,
    future: Pin<Box<F>>,
}

thread_local! {
    /// The process of the task that this thread polls.
    static CURRENT: RefCell<Option<Arc<dyn Process>>> = const { RefCell::new(None) };
}

impl<F: Future> Task<F> {
    /// Makes a future a task of a process.
    pub fn new(process: Arc<dyn Process>, future: F) -> Self {
        Self {
            process: Some(process),
            future: Box::pin(future),
        }
    }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(process) = &self.process else {
            return self.future.as_mut().poll(cx);
        };
        if !process.is_running(cx.waker()) {
            return Poll::Pending;
        }
        let before = CURRENT.replace(Some(process.clone()));
        let polled = self.future.as_mut().poll(cx);
        CURRENT.set(before);
        polled
    }
}

/// Makes a future that is about to be spawned a task of the current process.
pub(crate) fn tag_simulated_process<F: Future>(future: F) -> Task<F> {
    Task {
        process: CURRENT.with_borrow(Clone::clone),
        future: Box::pin(future),
    }
}
