//! Acquires one lock on a majority of several servers: Redlock.
//!
//! All servers get the request at the same time, and none gets long for its reply. The lock is acquired as soon as a
//! majority has granted it; the remaining votes are collected later. Once a majority is out of reach all requests are
//! undone, those without a reply included, and all servers are asked again after a random pause.

use std::sync::Arc;
use std::time::Duration;

mod maintenance;
pub(crate) mod quorum_hold;
mod vote;

use self::quorum_hold::QuorumHold;
use self::vote::{PendingVotes, ServerVote, vote_timeout};
use super::clock::with_timeout;
use super::hold_ref::HoldRef;
use super::multi::{LockTarget, release_all};
use super::{Core, DriverError, NamedDriverError};
use crate::driver::acquire::WaitLimit;
use crate::engine::StoreErrorKind;
use crate::protocol::Moment;
use crate::protocol::lease::LostReason;
use crate::protocol::quorum::{self, QuorumStatus, VoteCount, majority};

pub(crate) use self::vote::QuorumConfig;

/// Acquires the lock on a majority of these servers; `None` if other holders are in the way and the wait limit has
/// passed.
pub(crate) async fn acquire_quorum(
    targets: Vec<LockTarget>,
    config: QuorumConfig,
    wait_limit: WaitLimit,
) -> Result<Option<Arc<QuorumHold>>, Vec<NamedDriverError>> {
    tokio::task::coop::consume_budget().await;
    let primary = targets[0].core.clone();
    let begun = primary.clock.now();
    let deadline = match wait_limit {
        WaitLimit::Timeout(wait) => Some(begun + wait),
        WaitLimit::TryOnce => Some(begun),
        WaitLimit::Forever => None,
    };
    let mut attempt = QuorumAcquire {
        targets: &targets,
        config,
        primary: &primary,
        // The first round is a try, however short the wait.
        deadline: deadline.filter(|deadline| *deadline > begun),
        seen_busy: false,
    };
    let mut busy_before = false;
    loop {
        let hurried = attempt.is_hurried();
        let lost = match attempt.round().await {
            QuorumRound::Won { hold_refs, pending } => {
                let quorum_hold = QuorumHold::new(targets.clone(), hold_refs, config);
                // The votes may have taken longer than the lease.
                if quorum_hold.check_end().is_none() {
                    maintenance::start(&quorum_hold, pending);
                    return Ok(Some(quorum_hold));
                }
                let error = DriverError::Lost(LostReason::Expired);
                RoundLost {
                    busy: false,
                    errors: vec![targets[0].with(error)],
                }
            }
            QuorumRound::Lost(lost) => lost,
        };
        attempt.seen_busy |= lost.busy;
        if !lost.busy && !attempt.may_succeed_later(&lost.errors) {
            return Err(lost.errors);
        }
        let left = deadline.map(|deadline| deadline.since(primary.clock.now()));
        if left == Some(Duration::ZERO) {
            // A round with hardly any time for replies reports nothing new: the round before it decides.
            let as_before = hurried && busy_before && attempt.may_be_busy(&lost.errors);
            return match lost.busy || as_before {
                true => Ok(None),
                false => Err(lost.errors),
            };
        }
        busy_before = lost.busy;
        let pause = quorum::pause(primary.fresh_seed());
        let until = primary.clock.now() + left.map_or(pause, |left| left.min(pause));
        primary.clock.sleep_until(Some(until)).await;
    }
}

struct QuorumAcquire<'a> {
    targets: &'a [LockTarget],
    config: QuorumConfig,
    /// The deadline is measured by this client's clock; other clients may have another clock.
    primary: &'a Arc<Core>,
    deadline: Option<Moment>,
    /// Other holders were in the way: from then on the wait continues through outages.
    seen_busy: bool,
}

enum QuorumRound {
    Won {
        hold_refs: Vec<(usize, HoldRef)>,
        pending: PendingVotes,
    },
    Lost(RoundLost),
}

struct RoundLost {
    /// Enough servers are up: other holders are in the way.
    busy: bool,
    errors: Vec<NamedDriverError>,
}

impl QuorumAcquire<'_> {
    /// Sends one request to each server. A round that is not won leaves nothing on any server, now or later.
    async fn round(&self) -> QuorumRound {
        let left = self.left();
        let targets = self.targets.iter().enumerate();
        let mut pending_votes = PendingVotes::of(targets, self.config, left);
        let mut count = VoteCount::of(self.targets.len());
        let (mut hold_refs, mut errors) = (Vec::new(), Vec::new());
        while count.status() == QuorumStatus::Pending {
            let Some((index, vote)) = pending_votes.next().await else {
                break;
            };
            count.add(match vote {
                ServerVote::Granted(hold_ref) => {
                    hold_refs.push((index, hold_ref));
                    quorum::Vote::Granted
                }
                ServerVote::Refused => quorum::Vote::Refused,
                ServerVote::Absent(error) => {
                    errors.push(self.targets[index].with(error));
                    quorum::Vote::Absent
                }
            });
        }
        if count.status() == QuorumStatus::Won {
            while let Some((index, vote)) = pending_votes.next_now().await {
                if let ServerVote::Granted(hold_ref) = vote {
                    hold_refs.push((index, hold_ref));
                }
            }
            let pending = pending_votes;
            return QuorumRound::Won { hold_refs, pending };
        }
        // Requests in flight are undone, and grants are released.
        drop(pending_votes);
        let hold_refs = hold_refs
            .into_iter()
            .map(|(_, hold_ref)| hold_ref)
            .collect();
        let limit = self.primary.request_timeout(self.deadline);
        let _ = with_timeout(limit, Box::pin(release_all(hold_refs))).await;
        let busy = count.status() == QuorumStatus::Busy;
        QuorumRound::Lost(RoundLost { busy, errors })
    }

    /// Returns the time that is left, if that is limited.
    fn left(&self) -> Option<Duration> {
        self.deadline.map(|end| end.since(self.primary.clock.now()))
    }

    /// Returns whether a server asked now has less time for its reply than the vote timeout.
    fn is_hurried(&self) -> bool {
        let vote_timeout = vote_timeout(&self.targets[0]);
        self.left().is_some_and(|left| left < vote_timeout)
    }

    /// Returns whether a majority of the servers is up, if the servers that timed out are.
    fn may_be_busy(&self, errors: &[NamedDriverError]) -> bool {
        let missing = errors.iter().filter(|with| match &with.error {
            DriverError::TimedOut(_) => false,
            DriverError::StoreError(failure) => failure.kind != StoreErrorKind::TimedOut,
            DriverError::Closed
            | DriverError::Forked
            | DriverError::Lost(_)
            | DriverError::LeaseTooLong(_)
            | DriverError::TooManyReads
            | DriverError::RecentlyRestarted(..)
            | DriverError::WouldDeadlock => true,
        });
        self.targets.len() - missing.count() >= majority(self.targets.len())
    }

    /// Returns whether enough of the servers without a vote may have one later.
    fn may_succeed_later(&self, errors: &[NamedDriverError]) -> bool {
        let ends = errors.iter().filter(|with| match &with.error {
            DriverError::TimedOut(_)
            | DriverError::RecentlyRestarted(..)
            | DriverError::Lost(_) => false,
            DriverError::StoreError(failure) => !(self.seen_busy && failure.is_transient()),
            DriverError::Closed
            | DriverError::Forked
            | DriverError::LeaseTooLong(_)
            | DriverError::TooManyReads
            | DriverError::WouldDeadlock => true,
        });
        self.targets.len() - ends.count() >= majority(self.targets.len())
    }
}
