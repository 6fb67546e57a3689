//! A request that must not be forgotten when its caller is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cleanup::Ticket;
use super::clock::within;
use super::job::Job;
use super::{Core, no_answer};
use crate::engine::{Answer, Failure};
use crate::protocol::{Moment, Reply, Request};

/// Jobs that are made and pushed if the future that would have made them needless is dropped.
pub(super) struct Unfinished<'a, J, F>
where
    J: IntoIterator<Item = Job>,
    F: FnOnce() -> J,
{
    core: &'a Arc<Core>,
    jobs: Option<F>,
    under_way: Option<Answer<Result<Reply, Failure>>>,
    /// Dropped after the jobs were pushed, so that closing the client finds the ticket or the jobs.
    ticket: Option<Ticket>,
}

/// A request that was sent and not answered yet.
pub(super) struct UnderWay {
    answer: Answer<Result<Reply, Failure>>,
    limit: Duration,
}

impl<'a, J, F> Unfinished<'a, J, F>
where
    J: IntoIterator<Item = Job>,
    F: FnOnce() -> J,
{
    pub(super) const fn new(core: &'a Arc<Core>, jobs: F) -> Self {
        Self {
            core,
            jobs: Some(jobs),
            under_way: None,
            ticket: None,
        }
    }

    /// A release is being sent by other means than [`ask`](Self::ask): closing the client waits for it.
    pub(super) fn begin(&mut self) {
        self.ticket = Some(self.core.cleanup.work());
    }

    /// Asks the store, for as long as a request may take and not past the `deadline`. If this is dropped
    /// meanwhile, cleanup hears the answer.
    pub(super) async fn ask(
        &mut self,
        request: Request,
        deadline: Option<Moment>,
    ) -> Result<Reply, Failure> {
        if let Some(answer) = self
            .core
            .engine
            .call_now(&request, &|| self.core.clock.now())
        {
            return answer;
        }
        super::needs_a_runtime()?;
        self.ticket = Some(self.core.cleanup.call());
        let answer = self.core.engine.call(request);
        let answer = self.under_way.insert(answer);
        let limit = self.core.limit(deadline);
        let answer = match deadline {
            Some(_) => within(limit, self.core.wakeups.shield(answer)).await,
            None => self.core.overdue.in_time(answer).await,
        };
        // Answered, or given up: nothing more is to be heard of it.
        self.under_way = None;
        answer.unwrap_or_else(|| Err(no_answer(limit)))
    }

    /// The outcome is known: nothing to clean up.
    pub(super) fn settled(mut self) {
        self.jobs = None;
    }
}

impl<J, F> Drop for Unfinished<'_, J, F>
where
    J: IntoIterator<Item = Job>,
    F: FnOnce() -> J,
{
    fn drop(&mut self) {
        let Some(jobs) = self.jobs.take() else { return };
        if self.core.is_forked() || planted!(CancelledAcquireKept) {
            return;
        }
        let limit = self.core.settings.command_timeout;
        let answer = self.under_way.take();
        let mut under_way = answer.map(|answer| UnderWay { answer, limit });
        for job in jobs() {
            self.core.cleanup.push_behind(job, under_way.take());
        }
    }
}

impl UnderWay {
    /// What it came to, if that can still be learnt.
    pub(super) async fn answer(self) -> Option<Reply> {
        within(self.limit, self.answer).await?.ok()
    }
}

impl fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").finish_non_exhaustive()
    }
}
