//! A request that must not be forgotten when its caller is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::clock::within;
use super::job::Job;
use super::{Core, no_answer};
use crate::engine::{Answer, Failure};
use crate::protocol::{Reply, Request};

/// Jobs that are pushed if the future that would have made them needless is dropped.
pub(super) struct Unfinished {
    core: Arc<Core>,
    jobs: Vec<Job>,
    under_way: Option<Answer<Result<Reply, Failure>>>,
}

/// A request that was sent and not answered yet.
pub(super) struct UnderWay {
    answer: Answer<Result<Reply, Failure>>,
    limit: Duration,
}

impl Unfinished {
    pub(super) const fn new(core: Arc<Core>, jobs: Vec<Job>) -> Self {
        Self {
            core,
            jobs,
            under_way: None,
        }
    }

    /// Asks the store, for at most `limit`. If this is dropped meanwhile, cleanup hears the answer.
    pub(super) async fn ask(
        &mut self,
        request: Request,
        limit: Duration,
    ) -> Result<Reply, Failure> {
        if let Some(answer) = self.core.engine.call_now(&request) {
            return answer;
        }
        super::needs_a_runtime()?;
        let answer = self.core.engine.clone().call(request);
        let answer = self.under_way.insert(answer);
        let answer = within(limit, answer).await;
        // Answered, or given up: nothing more is to be heard of it.
        self.under_way = None;
        answer.unwrap_or_else(|| Err(no_answer(limit)))
    }

    /// The outcome is known: nothing to clean up.
    pub(super) fn settled(mut self) {
        self.jobs.clear();
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return;
        }
        let limit = self.core.settings.command_timeout;
        let mut under_way = self
            .under_way
            .take()
            .map(|answer| UnderWay { answer, limit });
        for job in self.jobs.drain(..) {
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

impl fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unfinished")
            .field("jobs", &self.jobs)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").finish_non_exhaustive()
    }
}
