//! A request that must not be forgotten when its caller is dropped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cleanup::WorkGuard;
use super::cleanup_job::CleanupJob;
use super::clock::with_timeout;
use super::{Core, no_reply};
use crate::engine::{BoxFuture, StoreError};
use crate::protocol::{Moment, Reply, Request};

/// Cleanup jobs that are created and pushed if the future is dropped that would have made them unnecessary.
pub(super) struct UndoOnDrop<'a, J, F>
where
    J: IntoIterator<Item = CleanupJob>,
    F: FnOnce() -> J,
{
    core: &'a Arc<Core>,
    jobs: Option<F>,
    in_flight: Option<BoxFuture<Result<Reply, StoreError>>>,
    /// Dropped after the jobs were pushed, so that closing the client finds either this guard or the jobs.
    work_guard: Option<WorkGuard>,
}

/// A request that was sent and has no reply yet.
pub(super) struct InFlight {
    reply: BoxFuture<Result<Reply, StoreError>>,
    limit: Duration,
}

impl<'a, J, F> UndoOnDrop<'a, J, F>
where
    J: IntoIterator<Item = CleanupJob>,
    F: FnOnce() -> J,
{
    pub(super) const fn new(core: &'a Arc<Core>, jobs: F) -> Self {
        Self {
            core,
            jobs: Some(jobs),
            in_flight: None,
            work_guard: None,
        }
    }

    /// Notes that a release is being sent by other means than [`send`](Self::send): closing the client waits for it.
    pub(super) fn track_release(&mut self) {
        self.work_guard = Some(self.core.cleanup.begin_release());
    }

    /// Sends a request to the store, with the command timeout and not past the `deadline`. If this is dropped
    /// meanwhile, cleanup awaits the reply.
    pub(super) async fn send(
        &mut self,
        request: Request,
        deadline: Option<Moment>,
    ) -> Result<Reply, StoreError> {
        if let Some(reply) = self
            .core
            .engine
            .call_now(&request, &|| self.core.clock.now())
        {
            return reply;
        }
        super::require_runtime()?;
        self.work_guard = Some(self.core.cleanup.begin_call());
        let reply = self.core.engine.call(request);
        let reply = self.in_flight.insert(reply);
        let limit = self.core.request_timeout(deadline);
        let reply = match deadline {
            Some(_) => {
                with_timeout(
                    limit,
                    self.core.waker_executor.with_waker_proxy_unpin(reply),
                )
                .await
            }
            None => self.core.call_timeouts.with_timeout(reply).await,
        };
        // The reply has arrived or the request was given up: there is nothing more to receive.
        self.in_flight = None;
        reply.unwrap_or_else(|| Err(no_reply(limit)))
    }

    /// Discards the cleanup jobs, because the outcome is known.
    pub(super) fn disarm(mut self) {
        self.jobs = None;
    }
}

impl<J, F> Drop for UndoOnDrop<'_, J, F>
where
    J: IntoIterator<Item = CleanupJob>,
    F: FnOnce() -> J,
{
    fn drop(&mut self) {
        let Some(jobs) = self.jobs.take() else { return };
        if self.core.is_forked() || planted!(CancelledAcquireKept) {
            return;
        }
        let limit = self.core.settings.command_timeout;
        let reply = self.in_flight.take();
        let mut in_flight = reply.map(|reply| InFlight { reply, limit });
        for job in jobs() {
            self.core.cleanup.push_after(job, in_flight.take());
        }
    }
}

impl InFlight {
    /// Returns the reply, if it still arrives.
    pub(super) async fn reply(self) -> Option<Reply> {
        with_timeout(self.limit, self.reply).await?.ok()
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").finish_non_exhaustive()
    }
}
