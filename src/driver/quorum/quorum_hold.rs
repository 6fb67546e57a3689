//! A lock that a majority of several servers has granted, while that lasts.
//!
//! Each grant is a hold of its own, with its client's watchdog. The whole is held while a majority of the grants is.
//! Servers that reply late, or have a vote again, may join, but only while the whole is held: a lost quorum stays lost,
//! even if a majority is granted again later.

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

/// A lock that is held on a majority of several servers.
pub(crate) struct QuorumHold {
    targets: Vec<LockTarget>,
    config: QuorumConfig,
    state: Mutex<QuorumHoldState>,
    changed: Notify,
}

struct QuorumHoldState {
    /// One entry for each server, set where the lock is granted.
    hold_refs: Vec<Option<HoldRef>>,
    end: Option<(QuorumEnd, Instant)>,
    maintenance: Option<AbortHandle>,
}

#[derive(Clone, Debug)]
pub(crate) enum QuorumEnd {
    /// The name of the lock whose loss broke the majority, and why it was lost.
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

    /// Returns the number of servers.
    pub(crate) fn members(&self) -> usize {
        self.targets.len()
    }

    /// Returns the longest lease that other clients wait for after a server's restart; `None` if they do not wait.
    pub(crate) fn longest_lease(&self) -> Option<Duration> {
        let own = self.targets[0].params.terms.lease;
        let longest = Some(self.config.longest_lease).filter(|longest| !longest.is_zero());
        longest.map(|longest| longest.max(own))
    }

    /// Sets the maintenance task, which ends with the hold.
    pub(super) fn set_maintenance_task(&self, maintenance: AbortHandle) {
        self.state().maintenance = Some(maintenance);
    }

    /// Adds the grant of another server. If the hold has ended, the grant is released.
    pub(super) fn join(&self, index: usize, hold_ref: HoldRef) {
        let mut state = self.state();
        // Checked under the lock that adds the grant: otherwise a hold that was lost in between would be held again
        // unnoticed.
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

    /// Returns the servers on which the lock is not held and may be requested again.
    pub(super) fn missing(&self) -> Vec<usize> {
        let state = self.state();
        let indexed = state.hold_refs.iter().enumerate();
        let missing = indexed.filter(|(_, hold_ref)| match hold_ref {
            None => true,
            Some(hold_ref) => match hold_ref.hold().lost() {
                // The hold was not to last longer.
                Some(LostReason::Closed | LostReason::MaxHold) | None => false,
                Some(LostReason::Expired | LostReason::Removed | LostReason::TakenOver) => true,
            },
        });
        missing.map(|(index, _)| index).collect()
    }

    /// Returns how the hold ended, if it has, even if that was not noticed before. The grants that remain are then
    /// released in the background.
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
        let remaining_holds = self.finish(state, end.clone());
        drop(remaining_holds);
        // Emitted after the lock is released: a subscriber may call the guard that the event is about.
        self.targets[0].core.events.emit(Level::WARN, move || {
            tracing::warn!(target: "distlock::lease", lock = ?name, ?reason, "lost on a majority of the servers");
        });
        Some(end)
    }

    /// Returns how long the hold remains valid.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state();
        if state.end.is_some() {
            return Duration::ZERO;
        }
        let each = state.holds().map(|hold| hold.remaining());
        majority_validity(each.collect(), self.targets.len())
    }

    /// Returns the end of the validity on the standard library's clock.
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

    /// Returns how many servers hold the lock now.
    pub(crate) fn votes(&self) -> usize {
        let state = self.state();
        match state.end {
            Some(_) => 0,
            None => state.holds().filter(|hold| hold.is_held()).count(),
        }
    }

    /// Returns what threatens the hold: fewer than a majority of its grants are renewed as they should be.
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

    /// Resolves when the hold has ended.
    pub(crate) async fn ended(self: Arc<Self>) -> QuorumEnd {
        loop {
            // Registered before the check: a task that changes the hold notifies afterwards.
            let waker_executor = self.waker_executor();
            let mut changed =
                waker_executor.with_waker_proxy_unpin(Box::pin(self.changed.notified()));
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
                let notified = Pin::new(&mut changed).poll(cx).is_ready();
                // Every future is polled, so that each has the current waker.
                let ended = ends
                    .iter_mut()
                    .fold(false, |any, end| end.as_mut().poll(cx).is_ready() | any);
                match notified || ended {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
    }

    /// Returns the lock's name, the same on every server.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.targets[0].params.subject.name
    }

    /// Returns whether the lease is renewed automatically.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.targets[0].params.terms.keep_alive
    }

    /// Extends the lease to end `lease` from now at the earliest. Returns the errors if too few servers have agreed.
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

    /// Releases the lock on all servers at once. Returns the errors if too few servers have confirmed that it was held;
    /// a release without a reply in time continues in the background.
    pub(crate) async fn release(&self) -> Result<(), Vec<NamedDriverError>> {
        let hold_refs = self.finish_released()?;
        let releasing = hold_refs.into_iter().map(|(index, hold_ref)| {
            let released = release::release(hold_ref, HandOff::InMemory);
            in_time(&self.targets[index], released)
        });
        self.agreed(join_all(self.waker_executor(), releasing).await)
    }

    /// Releases the lock on all servers after work that was done under it; fails only if too few servers can have held
    /// it until now. A server that does not reply may have.
    pub(crate) async fn release_after_run(&self) -> Result<(), Vec<NamedDriverError>> {
        let hold_refs = self.finish_released()?;
        let concluding = hold_refs.into_iter().map(|(index, hold_ref)| {
            let target = &self.targets[index];
            async move {
                let concluded = with_timeout(
                    vote_timeout(target),
                    Box::pin(release::release_after_run(hold_ref)),
                )
                .await;
                concluded
                    .unwrap_or(Ok(()))
                    .map_err(|error| target.with(error))
            }
        });
        self.agreed(join_all(self.waker_executor(), concluding).await)
    }

    /// Ends the hold and returns its grants; fails if it was lost.
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

    /// Succeeds if a majority has; otherwise returns the errors.
    fn agreed(
        &self,
        outcomes: Vec<Result<(), NamedDriverError>>,
    ) -> Result<(), Vec<NamedDriverError>> {
        let agreed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        match agreed >= self.needed() {
            true => Ok(()),
            false => Err(outcomes.into_iter().filter_map(Result::err).collect()),
        }
    }

    /// Releases the lock in the background.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if self.is_forked() {
            // The locks and threads belong to another process, and so does their memory: it must not be freed here.
            return std::mem::forget(self.clone());
        }
        let state = self.state();
        drop(self.finish(state, QuorumEnd::Released));
    }

    /// Stops renewing and leaves each server's grant to its lease.
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

    /// Ends the hold, unless it has ended, and returns the grants, which it no longer owns.
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
        // Aborting the task undoes the requests that it has in flight.
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

/// Awaits one server's reply within its vote timeout.
async fn in_time(
    target: &LockTarget,
    call: impl Future<Output = Result<(), DriverError>> + Send,
) -> Result<(), NamedDriverError> {
    let limit = vote_timeout(target);
    let outcome = with_timeout(limit, Box::pin(call)).await;
    let outcome = outcome.unwrap_or_else(|| Err(DriverError::StoreError(no_reply(limit))));
    outcome.map_err(|error| target.with(error))
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
        f.debug_struct("QuorumHold")
            .field("members", &self.targets.len())
            .field("votes", &self.votes())
            .finish_non_exhaustive()
    }
}
