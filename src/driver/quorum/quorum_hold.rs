//! A lock that most of several servers have granted, while that lasts.
//!
//! Each grant is a hold of its own, with its client's watchdog. The whole is held while most of them are; servers that answer
//! late, or have a vote again, may join, but only while it is held: what was lost once stays lost, though most may come to be
//! granted again.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::Level;

use super::vote::{QuorumConfig, vote_timeout};
use crate::driver::clock::with_timeout;
use crate::driver::hold::Hold;
use crate::driver::hold_ref::HoldRef;
use crate::driver::join_all::join_all;
use crate::driver::multi::LockTarget;
use crate::driver::release::{self, HandOff};
use crate::driver::{DriverError, NamedDriverError, no_reply};
use crate::engine::waker_executor::WakerExecutor;
use crate::protocol::lease::{LostReason, Risk};
use crate::protocol::quorum::{majority, majority_validity};

/// What is held on most of several servers.
pub(crate) struct QuorumHold {
    targets: Vec<LockTarget>,
    config: QuorumConfig,
    state: Mutex<QuorumHoldState>,
    changed: Notify,
}

struct QuorumHoldState {
    /// One for each part, where it is granted.
    hold_refs: Vec<Option<HoldRef>>,
    end: Option<(QuorumEnd, Instant)>,
    maintenance: Option<AbortHandle>,
}

#[derive(Clone, Debug)]
pub(crate) enum QuorumEnd {
    /// With the lock that made it too few, and why that was lost.
    Lost(Arc<str>, LostReason),
    Released,
}

impl QuorumHold {
    pub(super) fn new(
        targets: Vec<LockTarget>,
        granted: Vec<(usize, HoldRef)>,
        config: QuorumConfig,
    ) -> Arc<Self> {
        let mut hold_refs: Vec<Option<HoldRef>> = targets.iter().map(|_| None).collect();
        for (index, hold_ref) in granted {
            hold_refs[index] = Some(hold_ref);
        }
        Arc::new(Self {
            targets,
            config,
            state: Mutex::new(QuorumHoldState {
                hold_refs,
                end: None,
                maintenance: None,
            }),
            changed: Notify::new(),
        })
    }

    pub(super) fn targets(&self) -> &[LockTarget] {
        &self.targets
    }

    pub(super) const fn config(&self) -> QuorumConfig {
        self.config
    }

    /// How many servers there are.
    pub(crate) fn members(&self) -> usize {
        self.targets.len()
    }

    /// How long a lease others wait for after a server's restart; none if they do not.
    pub(crate) fn longest_lease(&self) -> Option<Duration> {
        let own = self.targets[0].params.terms.lease;
        let longest = Some(self.config.longest_lease).filter(|longest| !longest.is_zero());
        longest.map(|longest| longest.max(own))
    }

    /// The task that looks after it, and ends with it.
    pub(super) fn set_maintenance_task(&self, maintenance: AbortHandle) {
        self.state().maintenance = Some(maintenance);
    }

    /// Another server has granted it. Too late if it is over: that is given back.
    pub(super) fn join(&self, index: usize, hold_ref: HoldRef) {
        let mut state = self.state();
        // Looked at under the same lock: lost between the two, it would be held again and nobody would know.
        let held = state.end.is_none() && state.is_held(self.needed());
        let left_over = match held {
            true => state.hold_refs[index].replace(hold_ref),
            false => Some(hold_ref),
        };
        drop(state);
        drop(left_over);
        self.check_end();
        self.changed.notify_waiters();
    }

    /// Where it is not held, and may be asked for again.
    pub(super) fn missing(&self) -> Vec<usize> {
        let state = self.state();
        let indexed = state.hold_refs.iter().enumerate();
        let missing = indexed.filter(|(_, hold_ref)| match hold_ref {
            None => true,
            Some(hold_ref) => match hold_ref.hold().lost() {
                // It was not to be held for longer.
                Some(LostReason::Closed | LostReason::MaxHold) | None => false,
                Some(LostReason::Expired | LostReason::Removed | LostReason::TakenOver) => true,
            },
        });
        missing.map(|(index, _)| index).collect()
    }

    /// How it ended, if it has, noticed or not. What is left of it is then given back in the background.
    pub(crate) fn check_end(&self) -> Option<QuorumEnd> {
        let state = self.state();
        if let Some((end, _)) = &state.end {
            return Some(end.clone());
        }
        if state.is_held(self.needed()) {
            return None;
        }
        let lost = state
            .holds()
            .find_map(|hold| Some((hold.subject.name.clone(), hold.lost()?)));
        let (name, reason) = lost.unwrap_or_else(|| (self.name().clone(), LostReason::Expired));
        let end = QuorumEnd::Lost(name.clone(), reason);
        let rest = self.finish(state, end.clone());
        drop(rest);
        // Behind the lock: a subscriber may ask the guard that it reads of.
        self.targets[0].core.events.emit(Level::WARN, move || {
            tracing::warn!(?name, ?reason, "lost on most servers");
        });
        Some(end)
    }

    /// For how long it can still be relied on.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state();
        if state.end.is_some() {
            return Duration::ZERO;
        }
        let each = state.holds().map(|hold| hold.remaining());
        majority_validity(each.collect(), self.targets.len())
    }

    /// The same as a point on the standard library's clock.
    pub(crate) fn valid_until(&self) -> Instant {
        let state = self.state();
        if let Some((_, at)) = state.end {
            return at;
        }
        let held = state.holds().filter(|hold| hold.is_held());
        let mut ends: Vec<_> = held.map(|hold| hold.valid_until_instant()).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let last = ends.get(self.needed() - 1).copied();
        last.unwrap_or_else(|| self.instant())
    }

    /// How many servers hold it now.
    pub(crate) fn votes(&self) -> usize {
        let state = self.state();
        match state.end {
            Some(_) => 0,
            None => state.holds().filter(|hold| hold.is_held()).count(),
        }
    }

    /// What threatens it: fewer than most are renewed as they should be.
    pub(crate) fn risk(&self) -> Option<Risk> {
        let state = self.state();
        if state.end.is_some() || !state.is_held(self.needed()) {
            return None;
        }
        let held = state.holds().filter(|hold| hold.is_held());
        let risks: Vec<_> = held.map(|hold| hold.risk()).collect();
        let safe = risks.iter().filter(|risk| risk.is_none()).count();
        match safe < self.needed() {
            true => risks
                .into_iter()
                .flatten()
                .next()
                .or(Some(Risk::RenewalFailed)),
            false => None,
        }
    }

    /// Resolves when it is over.
    pub(crate) async fn ended(self: Arc<Self>) -> QuorumEnd {
        loop {
            // Before it is looked at: whoever changes it tells afterwards.
            let waker_executor = self.waker_executor();
            let mut changed = waker_executor.with_proxy_unpin(Box::pin(self.changed.notified()));
            if let Some(end) = self.check_end() {
                return end;
            }
            let holds: Vec<Arc<Hold>> = {
                let state = self.state();
                let held = state.holds().filter(|hold| hold.is_held());
                held.cloned().collect()
            };
            let mut ends: Vec<_> = holds
                .into_iter()
                .map(|hold| Box::pin(hold.ended()))
                .collect();
            poll_fn(|cx| {
                let told = Pin::new(&mut changed).poll(cx).is_ready();
                // Every one, so that each knows whom to wake.
                let ended = ends
                    .iter_mut()
                    .fold(false, |any, end| end.as_mut().poll(cx).is_ready() | any);
                match told || ended {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
    }

    /// The lock's name on every server.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.targets[0].params.subject.name
    }

    /// Whether it is renewed by itself.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.targets[0].params.terms.keep_alive
    }

    /// Makes it last this long from now, if it would end sooner. Says what went wrong if too few servers have agreed.
    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), Vec<NamedDriverError>> {
        let holds: Vec<_> = {
            let state = self.state();
            let indexed = state.hold_refs.iter().enumerate();
            let holds = indexed
                .filter_map(|(index, hold_ref)| Some((index, hold_ref.as_ref()?.hold().clone())));
            holds.collect()
        };
        let extending = holds.into_iter().map(|(index, hold)| {
            let target = &self.targets[index];
            in_time(target, async move { hold.extend(lease).await })
        });
        self.agreed(join_all(self.waker_executor(), extending).await)
    }

    /// Gives it back everywhere at once. Says what went wrong if too few servers have agreed that it was ours; what is not
    /// answered in time goes on in the background.
    pub(crate) async fn release(&self) -> Result<(), Vec<NamedDriverError>> {
        let hold_refs = self.finish_released()?;
        let releasing = hold_refs.into_iter().map(|(index, hold_ref)| {
            let released = release::release(hold_ref, HandOff::InMemory);
            in_time(&self.targets[index], released)
        });
        self.agreed(join_all(self.waker_executor(), releasing).await)
    }

    /// Releases it everywhere after work that was done under it; fails only if too few servers can have held it until now. A
    /// server that does not reply may have.
    pub(crate) async fn conclude(&self) -> Result<(), Vec<NamedDriverError>> {
        let hold_refs = self.finish_released()?;
        let concluding = hold_refs.into_iter().map(|(index, hold_ref)| {
            let target = &self.targets[index];
            async move {
                let concluded =
                    with_timeout(vote_timeout(target), Box::pin(release::conclude(hold_ref))).await;
                concluded
                    .unwrap_or(Ok(()))
                    .map_err(|error| target.with(error))
            }
        });
        self.agreed(join_all(self.waker_executor(), concluding).await)
    }

    /// Ends it and returns what it held; fails if it was lost.
    fn finish_released(&self) -> Result<Vec<(usize, HoldRef)>, Vec<NamedDriverError>> {
        if self.is_forked() {
            return Err(vec![DriverError::Forked.with(self.name())]);
        }
        let lost = self.check_end();
        let state = self.state();
        let hold_refs = self.finish(state, QuorumEnd::Released);
        match lost {
            Some(QuorumEnd::Lost(name, reason)) => Err(vec![DriverError::Lost(reason).with(&name)]),
            _ => Ok(hold_refs),
        }
    }

    /// Whether most have; what was wrong with the others if not.
    fn agreed(
        &self,
        answers: Vec<Result<(), NamedDriverError>>,
    ) -> Result<(), Vec<NamedDriverError>> {
        let agreed = answers.iter().filter(|answer| answer.is_ok()).count();
        match agreed >= self.needed() {
            true => Ok(()),
            false => Err(answers.into_iter().filter_map(Result::err).collect()),
        }
    }

    /// The same in the background.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if self.is_forked() {
            // Another process's locks and threads: not even their memory is ours to free.
            return std::mem::forget(self.clone());
        }
        let state = self.state();
        drop(self.finish(state, QuorumEnd::Released));
    }

    /// Leaves each server's part to its lease.
    pub(crate) fn forget(&self) {
        if self.is_forked() {
            return;
        }
        let state = self.state();
        let hold_refs = self.finish(state, QuorumEnd::Released);
        hold_refs
            .into_iter()
            .for_each(|(_, hold_ref)| release::forget(hold_ref));
    }

    fn waker_executor(&self) -> &WakerExecutor {
        &self.targets[0].core.waker_executor
    }

    fn instant(&self) -> Instant {
        self.targets[0].core.clock.instant()
    }

    fn is_forked(&self) -> bool {
        self.targets.iter().any(|target| target.core.is_forked())
    }

    /// Ends it, unless it has ended; what is held is no longer its own.
    fn finish(
        &self,
        mut state: MutexGuard<'_, QuorumHoldState>,
        end: QuorumEnd,
    ) -> Vec<(usize, HoldRef)> {
        state.end.get_or_insert_with(|| (end, self.instant()));
        let hold_refs = state.hold_refs.iter_mut().enumerate();
        let hold_refs = hold_refs.filter_map(|(index, hold_ref)| Some((index, hold_ref.take()?)));
        let hold_refs = hold_refs.collect();
        let maintenance = state.maintenance.take();
        drop(state);
        // What it is still asking for is undone.
        if let Some(maintenance) = maintenance {
            maintenance.abort();
        }
        self.changed.notify_waiters();
        hold_refs
    }

    fn needed(&self) -> usize {
        majority(self.targets.len())
    }

    fn state(&self) -> MutexGuard<'_, QuorumHoldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this server answers, within the time that it has.
async fn in_time(
    target: &LockTarget,
    answer: impl Future<Output = Result<(), DriverError>> + Send,
) -> Result<(), NamedDriverError> {
    let limit = vote_timeout(target);
    let answer = with_timeout(limit, Box::pin(answer)).await;
    let answer = answer.unwrap_or_else(|| Err(DriverError::StoreError(no_reply(limit))));
    answer.map_err(|error| target.with(error))
}

impl QuorumHoldState {
    fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.hold_refs.iter().flatten().map(HoldRef::hold)
    }

    fn is_held(&self, needed: usize) -> bool {
        self.holds().filter(|hold| hold.is_held()).count() >= needed
    }
}

impl fmt::Debug for QuorumHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Majority")
            .field("members", &self.targets.len())
            .field("votes", &self.votes())
            .finish_non_exhaustive()
    }
}
