//! The votes of several servers that are asked for one lock at the same time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::driver::acquire::try_once;
use crate::driver::clock::with_timeout;
use crate::driver::hold_ref::HoldRef;
use crate::driver::multi::LockTarget;
use crate::driver::reenter::reenter;
use crate::driver::{DriverError, no_reply};
use crate::engine::{StoreError, Uptime};
use crate::protocol::Moment;
use crate::protocol::quorum::{has_vote, reply_timeout};

/// The vote of one server.
#[derive(Debug)]
pub(super) enum ServerVote {
    Granted(HoldRef),
    /// Another owner holds the lock on this server.
    Refused,
    /// The server gave no reply or an error, or it has no vote.
    Absent(DriverError),
}

/// How the servers of a quorum are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuorumConfig {
    /// How long a server has to be up until it has a vote.
    pub(crate) longest_lease: Duration,
}

type PendingVote = Pin<Box<dyn Future<Output = ServerVote> + Send>>;

/// The requests that have no reply yet. Dropping this undoes them.
pub(super) struct PendingVotes {
    pending: Vec<(usize, PendingVote)>,
}

impl PendingVotes {
    /// Sends a request to each of these servers, identified by index, with at most `limit` for each reply if there is
    /// one.
    pub(super) fn of<'a>(
        targets: impl IntoIterator<Item = (usize, &'a LockTarget)>,
        config: QuorumConfig,
        limit: Option<Duration>,
    ) -> Self {
        let pending = targets.into_iter().map(|(index, target)| {
            let pending: PendingVote = Box::pin(vote(target.clone(), config, limit));
            (index, pending)
        });
        Self {
            pending: pending.collect(),
        }
    }

    /// Returns the next vote; `None` when all servers have voted.
    pub(super) async fn next(&mut self) -> Option<(usize, ServerVote)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns a vote that has already arrived, if there is one.
    pub(super) async fn next_now(&mut self) -> Option<(usize, ServerVote)> {
        poll_fn(|cx| match self.poll_next(cx) {
            Poll::Ready(next) => Poll::Ready(next),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, ServerVote)>> {
        if self.pending.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.pending.len() {
            let (index, pending) = &mut self.pending[at];
            let index = *index;
            if let Poll::Ready(vote) = pending.as_mut().poll(cx) {
                // Dropped before its server can be asked again.
                drop(self.pending.swap_remove(at));
                return Poll::Ready(Some((index, vote)));
            }
        }
        Poll::Pending
    }
}

/// Returns how long this server may take to reply.
pub(super) fn vote_timeout(target: &LockTarget) -> Duration {
    let limit = target.core.settings.command_timeout;
    reply_timeout(target.params.terms.lease).min(limit)
}

/// Asks one server for its vote. If this is dropped, or has no reply in time, the request is undone.
async fn vote(target: LockTarget, config: QuorumConfig, limit: Option<Duration>) -> ServerVote {
    let vote_timeout = vote_timeout(&target);
    let limit = limit.map_or(vote_timeout, |limit| limit.min(vote_timeout));
    match acquire_and_verify(&target, config, limit).await {
        Ok(Some(hold_ref)) => ServerVote::Granted(hold_ref),
        Ok(None) => ServerVote::Refused,
        // The lock's name is the same on all servers, so the error names the server.
        Err(DriverError::StoreError(StoreError { kind, detail })) => {
            let detail = format!("{}: {detail}", target.server());
            ServerVote::Absent(DriverError::StoreError(StoreError { kind, detail }))
        }
        Err(error) => ServerVote::Absent(error),
    }
}

async fn acquire_and_verify(
    target: &LockTarget,
    config: QuorumConfig,
    limit: Duration,
) -> Result<Option<HoldRef>, DriverError> {
    let LockTarget { core, params } = target;
    core.ensure_usable()?;
    let deadline = core.clock.now() + limit;
    let recently_restarted = || {
        Err(DriverError::RecentlyRestarted(
            config.longest_lease,
            core.engine.server_id(),
        ))
    };
    // Where restarts do not matter the uptime is not requested.
    let before = match config.longest_lease.is_zero() {
        true => None,
        false => uptime(target, deadline).await?,
    };
    if before.is_some_and(|uptime| !has_vote(uptime.at_least, config.longest_lease)) {
        return recently_restarted();
    }
    let hold_ref = match reenter(core, params, Some(deadline)).await? {
        Some(hold_ref) => Some(hold_ref),
        None => try_once(core, params, core.clock.now(), Some(deadline)).await?,
    };
    if let (Some(_), Some(before)) = (&hold_ref, before) {
        // A restart ends every connection: over the same connection, it was the same server process throughout.
        let after = uptime(target, deadline).await?;
        if after.is_none_or(|after| after.connection != before.connection) {
            return recently_restarted();
        }
    }
    core.ensure_usable()?;
    Ok(hold_ref)
}

async fn uptime(target: &LockTarget, deadline: Moment) -> Result<Option<Uptime>, DriverError> {
    let core = &target.core;
    let limit = core.request_timeout(Some(deadline));
    let uptime = Arc::clone(&core.engine).uptime();
    let reply = with_timeout(limit, core.waker_executor.with_waker_proxy_unpin(uptime)).await;
    let reply: Result<_, StoreError> = reply.unwrap_or_else(|| Err(no_reply(limit)));
    reply.map_err(DriverError::StoreError)
}
