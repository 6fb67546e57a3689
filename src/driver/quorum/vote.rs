//! What each of several servers says when all are asked for one lock at the same time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::driver::acquire::once;
use crate::driver::claim::Claim;
use crate::driver::clock::within;
use crate::driver::multi::Part;
use crate::driver::reenter::reenter;
use crate::driver::{Trouble, no_answer};
use crate::engine::{Failure, Uptime};
use crate::protocol::Moment;
use crate::protocol::quorum::{answers_within, has_vote};

/// What one server says.
#[derive(Debug)]
pub(super) enum Vote {
    Granted(Claim),
    /// It is somebody else's.
    Refused,
    /// Nothing, or that it cannot, or it has no vote.
    Absent(Trouble),
}

/// How servers are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// How long a server has to be up until it has a vote.
    pub(crate) longest_lease: Duration,
}

type Asking = Pin<Box<dyn Future<Output = Vote> + Send>>;

/// All that are asked, and have not answered yet. Dropped, what is under way is undone.
pub(super) struct Ballot {
    asking: Vec<(usize, Asking)>,
}

impl Ballot {
    /// Asks these, which are known by their places, for at most `limit` each if there is one.
    pub(super) fn of<'a>(
        parts: impl IntoIterator<Item = (usize, &'a Part)>,
        rules: Rules,
        limit: Option<Duration>,
    ) -> Self {
        let asking = parts.into_iter().map(|(place, part)| {
            let asking: Asking = Box::pin(vote(part.clone(), rules, limit));
            (place, asking)
        });
        Self {
            asking: asking.collect(),
        }
    }

    /// The next who answers; `None` when all have.
    pub(super) async fn next(&mut self) -> Option<(usize, Vote)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// One that has answered already, if there is one.
    pub(super) async fn next_now(&mut self) -> Option<(usize, Vote)> {
        poll_fn(|cx| match self.poll_next(cx) {
            Poll::Ready(next) => Poll::Ready(next),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Vote)>> {
        if self.asking.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.asking.len() {
            let (place, asking) = &mut self.asking[at];
            let place = *place;
            if let Poll::Ready(vote) = asking.as_mut().poll(cx) {
                // Gone before anybody can be asked again who has answered.
                drop(self.asking.swap_remove(at));
                return Poll::Ready(Some((place, vote)));
            }
        }
        Poll::Pending
    }
}

/// How long this server may take to answer.
pub(super) fn patience(part: &Part) -> Duration {
    let limit = part.core.settings.command_timeout;
    answers_within(part.wish.terms.lease).min(limit)
}

/// Asks one server. Dropped, or without an answer in time, it is undone.
async fn vote(part: Part, rules: Rules, limit: Option<Duration>) -> Vote {
    let patience = patience(&part);
    let limit = limit.map_or(patience, |limit| limit.min(patience));
    match ask(&part, rules, limit).await {
        Ok(Some(claim)) => Vote::Granted(claim),
        Ok(None) => Vote::Refused,
        // All have the same name: whoever reads of it wants to know where.
        Err(Trouble::Failure(Failure { cause, detail })) => {
            let detail = format!("{}: {detail}", part.server());
            Vote::Absent(Trouble::Failure(Failure { cause, detail }))
        }
        Err(trouble) => Vote::Absent(trouble),
    }
}

async fn ask(part: &Part, rules: Rules, limit: Duration) -> Result<Option<Claim>, Trouble> {
    let Part { core, wish } = part;
    core.usable()?;
    let deadline = core.clock.now() + limit;
    let too_young = || Err(Trouble::TooYoung(rules.longest_lease, core.engine.server()));
    // Where restarts do not matter nobody asks.
    let before = match rules.longest_lease.is_zero() {
        true => None,
        false => uptime(part, deadline).await?,
    };
    if before.is_some_and(|uptime| !has_vote(uptime.at_least, rules.longest_lease)) {
        return too_young();
    }
    let claim = match reenter(core, wish, Some(deadline)).await? {
        Some(claim) => Some(claim),
        None => once(core, wish, core.clock.now(), Some(deadline)).await?,
    };
    if let (Some(_), Some(before)) = (&claim, before) {
        // A restart ends every connection: over the same one it was the same server all the while.
        let after = uptime(part, deadline).await?;
        if after.is_none_or(|after| after.connection != before.connection) {
            return too_young();
        }
    }
    core.usable()?;
    Ok(claim)
}

async fn uptime(part: &Part, deadline: Moment) -> Result<Option<Uptime>, Trouble> {
    let core = &part.core;
    let limit = core.limit(Some(deadline));
    let uptime = Arc::clone(&core.engine).uptime();
    let answer = within(limit, core.wakeups.shield(uptime)).await;
    let answer: Result<_, Failure> = answer.unwrap_or_else(|| Err(no_answer(limit)));
    answer.map_err(Trouble::Failure)
}
