//! One grant while it lasts: shared by its guards, the watchdog and the tasks that wait for its end.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tracing::Level;

use super::acquire::AcquireParams;
use super::cleanup_job::CleanupJob;
use super::hold_ref::HoldRef;
use super::owners::LocalOwner;
use super::release_outcome::ReleaseOutcome;
use super::{Core, DriverError};
use crate::engine::StoreError;
use crate::protocol::lease::{HoldEnd, LeaseState, LeaseTerms, LostReason, Risk, Tick};
use crate::protocol::{Action, FencingToken, Moment, OwnerId, Reply, Request, Subject};

/// A lock that is held.
pub(crate) struct Hold {
    pub(super) id: u64,
    pub(crate) core: Arc<Core>,
    pub(crate) subject: Subject,
    /// The owner id in the store.
    pub(crate) owner: OwnerId,
    /// The token of the grant, where grants have one.
    pub(crate) token: Option<FencingToken>,
    /// The owner as the user named it.
    pub(crate) local_owner: Option<LocalOwner>,
    /// The terms of the first guard.
    pub(crate) terms: LeaseTerms,
    state: Mutex<HoldState>,
    /// Created by the first task that waits for the end: most holds are released before there is one.
    ended: OnceLock<Box<Notify>>,
    /// The mutex that orders re-entries and partial releases, so that the store's count follows the number of guards. A
    /// tokio mutex, because it is held while a request is in flight.
    count_order: OnceLock<Box<tokio::sync::Mutex<()>>>,
}

#[derive(Debug)]
pub(super) struct HoldState {
    pub(super) lease: LeaseState,
    /// The number of the owner's last acquire: each has its own, so that it can be undone.
    pub(super) acquire_seq: u32,
    /// A request of the owner got no reply, and may still reach the store.
    pub(super) has_orphan_request: bool,
    /// The outcome of the release.
    pub(super) outcome: ReleaseOutcome,
    /// When the watchdog checks the hold next.
    due: Option<Moment>,
    /// `valid_until` on the standard library's clock, so that every call returns the same instant.
    shown_until: Option<Box<(Moment, Instant)>>,
    /// Why the last renewal failed, until one succeeds.
    renewal_error: Option<Arc<str>>,
}

impl Hold {
    /// Creates the hold for a grant of the store to `owner`, with its first [`HoldRef`]; `None` if the lease expired
    /// before the reply arrived.
    pub(super) fn granted(
        core: &Arc<Core>,
        params: &AcquireParams,
        owner: OwnerId,
        token: Option<FencingToken>,
        sent: Moment,
        now: Moment,
    ) -> Option<HoldRef> {
        let mut lease = LeaseState::granted(params.terms, sent, now)?;
        if params.subject.kind.is_inspectable() && core.schedule.is_suspect(sent) {
            lease.mark_suspect(now);
        }
        let AcquireParams {
            subject,
            terms,
            local_owner,
            ..
        } = params;
        let grant = (owner, token);
        Some(Self::start(
            core,
            subject,
            grant,
            *terms,
            *local_owner,
            lease,
        ))
    }

    /// Returns the hold that continues this one for another waiter, under the same or another owner id in the store.
    pub(super) fn successor(
        &self,
        owner: OwnerId,
        token: Option<FencingToken>,
        local_owner: Option<LocalOwner>,
        lease: LeaseState,
    ) -> HoldRef {
        // The next holder has asked for the same terms.
        let grant = (owner, token);
        Self::start(
            &self.core,
            &self.subject,
            grant,
            self.terms,
            local_owner,
            lease,
        )
    }

    /// Starts a hold: from now on the watchdog checks it, and its local owner finds it.
    fn start(
        core: &Arc<Core>,
        subject: &Subject,
        (owner, token): (OwnerId, Option<FencingToken>),
        terms: LeaseTerms,
        local_owner: Option<LocalOwner>,
        lease: LeaseState,
    ) -> HoldRef {
        let hold = Arc::new(Self {
            id: core.next_hold_id(),
            core: core.clone(),
            subject: subject.clone(),
            owner,
            token,
            local_owner,
            terms,
            state: Mutex::new(HoldState {
                lease,
                acquire_seq: 1,
                has_orphan_request: false,
                outcome: ReleaseOutcome::default(),
                due: None,
                shown_until: None,
                renewal_error: None,
            }),
            ended: OnceLock::new(),
            count_order: OnceLock::new(),
        });
        if let Some(local_owner) = local_owner {
            core.owners.insert(local_owner, hold.clone());
        }
        hold.reschedule();
        HoldRef::new(hold, 0)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, HoldState> {
        // No user code runs under this lock, so the data of a poisoned one is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request of the owner may still reach the store, where it would create a hold without a guard.
    pub(super) fn note_orphan_request(&self) {
        self.state().has_orphan_request = true;
    }

    /// Returns the mutex that orders re-entries and partial releases.
    pub(super) fn count_order(&self) -> &tokio::sync::Mutex<()> {
        self.count_order.get_or_init(Box::default)
    }

    /// Returns a request about this hold.
    pub(super) fn request(&self, action: Action) -> Request {
        self.subject.request(action)
    }

    /// Builds a request that states how often the lock is held. A store that replies without I/O gets the request here,
    /// under the lock that keeps the count from changing.
    pub(super) fn count_request(
        &self,
        action: impl FnOnce(&mut HoldState) -> Option<Action>,
    ) -> Option<(Request, Option<Result<Reply, StoreError>>)> {
        let mut state = self.state();
        let request = self.request(action(&mut state)?);
        let reply = self.core.engine.call_now(&request, &|| self.now());
        Some((request, reply))
    }

    pub(crate) fn now(&self) -> Moment {
        self.core.clock.now()
    }

    /// Returns whether the hold is valid by the clock, without a request to the store.
    pub(crate) fn is_held(&self) -> bool {
        self.state().lease.is_valid(self.now())
    }

    /// Returns why the hold was lost, whether that was noticed yet or not.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.state().lease.lost(self.now())
    }

    /// Returns why the last renewal failed; `None` if it succeeded, or none was due yet.
    pub(crate) fn renewal_error(&self) -> Option<Arc<str>> {
        self.state().renewal_error.clone()
    }

    /// Returns how long the hold remains valid.
    pub(crate) fn remaining(&self) -> Duration {
        let now = self.now();
        let lease = &self.state().lease;
        match lease.is_valid(now) {
            true if planted!(RemainingTwice) => lease.valid_until().since(now) * 2,
            true => lease.valid_until().since(now),
            false => Duration::ZERO,
        }
    }

    /// Returns the end of the validity on the standard library's clock, which users can compare with.
    pub(crate) fn valid_until_instant(&self) -> Instant {
        let mut state = self.state();
        let until = state.lease.valid_until();
        if let Some((_, instant)) = state
            .shown_until
            .as_deref()
            .filter(|(moment, _)| *moment == until)
        {
            return *instant;
        }
        // The lease clock is read first: the shown instant may be a moment late, never early, so that the hold is over
        // by then.
        let (now, instant) = (self.now(), self.core.clock.instant());
        let shown_until = if until >= now {
            instant.checked_add(until.since(now))
        } else {
            instant.checked_sub(now.since(until))
        };
        // A lease of a hundred years may exceed the range of `Instant`; the present instant is as good as any.
        let shown_until = shown_until.unwrap_or(instant);
        state.shown_until = Some(Box::new((until, shown_until)));
        shown_until
    }

    pub(crate) fn keeps_alive(&self, hold_ref: &HoldRef) -> bool {
        self.state().lease.keeps_alive(hold_ref.guard)
    }

    pub(crate) fn risk(&self) -> Option<Risk> {
        self.state().lease.risk(self.now())
    }

    pub(crate) fn count(&self) -> u32 {
        self.state().lease.count()
    }

    /// Resolves when the hold has ended, with the reason if it was lost.
    pub(crate) async fn ended(self: Arc<Self>) -> Option<LostReason> {
        if planted!(LossNotTold) {
            std::future::pending::<()>().await;
        }
        loop {
            // Registered before the state is checked: the task that ends the hold changes the state first and notifies
            // afterwards.
            let ended = self.end_signal().notified();
            // The lease is compared with the clock, because the watchdog's notification may be late.
            {
                let state = self.state();
                if let Some(reason) = state.lease.lost(self.now()) {
                    return Some(reason);
                }
                if state.lease.end() == Some(HoldEnd::Released) {
                    return None;
                }
            }
            self.core.waker_executor.with_waker_proxy(ended).await;
        }
    }

    /// Checks the hold for the watchdog; returns the lease to request from the store, if a renewal is due.
    pub(super) fn tick(self: &Arc<Self>) -> Option<Duration> {
        let mut state = self.state();
        // The schedule does not contain the hold while it is checked.
        state.due = None;
        if self.core.is_closed() {
            drop(state);
            self.lose(LostReason::Closed);
            return None;
        }
        match state.lease.tick(self.now()) {
            Tick::Over => None,
            Tick::Sleep(until) => {
                self.schedule_at(&mut state, Some(until));
                None
            }
            Tick::Renew { lease, check_again } => {
                self.schedule_at(&mut state, Some(check_again));
                Some(lease)
            }
            Tick::Lost(reason) => {
                drop(state);
                self.on_lost(reason);
                None
            }
        }
    }

    pub(super) fn renewed(self: &Arc<Self>, lease: Duration, sent: Moment) {
        let now = self.now();
        let mut state = self.state();
        state.lease.renewed(lease, sent, now);
        state.renewal_error = None;
        drop(state);
        self.emit(
            Level::TRACE,
            |name, owner| tracing::trace!(target: "distlock::lease", lock = ?name, %owner, "renewed"),
        );
        self.reschedule();
    }

    pub(super) fn renewal_failed(self: &Arc<Self>, lease: Duration, why: &str) {
        let now = self.now();
        let mut state = self.state();
        state.lease.renewal_failed(lease, now);
        state.renewal_error = Some(why.into());
        let left = state.lease.valid_until().since(now);
        let live = state.lease.end().is_none();
        drop(state);
        if live {
            let why = why.to_owned();
            self.emit(Level::WARN, move |name, owner| {
                tracing::warn!(target: "distlock::lease", lock = ?name, %owner, remaining = ?left, error = why, "at risk: a renewal failed");
            });
        }
        self.reschedule();
    }

    /// Notes that the store may have forgotten the hold.
    pub(super) fn mark_suspect(self: &Arc<Self>) {
        if !self.subject.kind.is_inspectable() {
            return;
        }
        let now = self.now();
        self.state().lease.mark_suspect(now);
        self.reschedule();
    }

    /// Notes a lease that the store granted apart from the renewals: for a re-entry or an extension.
    pub(super) fn extended(self: &Arc<Self>, lease: Duration, sent: Moment) {
        let now = self.now();
        self.state().lease.extended(lease, sent, now);
        self.reschedule();
    }

    /// Returns the error for a reply that denies the hold, or that makes no sense. The hold ends if the reply denies
    /// it.
    pub(super) fn refused(self: &Arc<Self>, reply: &Reply) -> DriverError {
        if let Some(reason) = reply.refusal() {
            self.lose(reason);
        }
        DriverError::refused(reply)
    }

    /// Ends the hold as lost, notifies everyone, and releases what the store may still keep of it.
    pub(crate) fn lose(self: &Arc<Self>, reason: LostReason) {
        let first = self.state().lease.mark_lost(reason);
        if first {
            self.on_lost(reason);
        }
    }

    /// Removes the hold from the watchdog's schedule.
    pub(super) fn unschedule(self: &Arc<Self>, state: &mut HoldState) {
        self.schedule_at(state, None);
    }

    /// Forgets the local owner of the hold and notifies the tasks that wait for its end.
    pub(super) fn notify_ended(&self) {
        if let Some(local_owner) = self.local_owner {
            self.core.owners.remove(local_owner, self);
        }
        self.notify();
    }

    /// Returns the signal for the end and for the outcome of the release.
    pub(super) fn end_signal(&self) -> &Notify {
        self.ended.get_or_init(Box::default)
    }

    /// Wakes the tasks that wait for the end or the outcome.
    pub(super) fn notify(&self) {
        if let Some(ended) = self.ended.get() {
            ended.notify_waiters();
        }
    }

    /// Carries out what follows once the lease state machine has reported the loss.
    pub(super) fn on_lost(self: &Arc<Self>, reason: LostReason) {
        self.unschedule(&mut self.state());
        self.notify_ended();
        self.core.cleanup.push(CleanupJob::Release(self.clone()));
        let level = match reason {
            LostReason::Closed => Level::DEBUG,
            _ => Level::WARN,
        };
        self.emit(level, move |name, owner| match reason {
            LostReason::Closed => {
                tracing::debug!(target: "distlock::release", lock = ?name, %owner, "released: the client was closed");
            }
            reason => tracing::warn!(target: "distlock::lease", lock = ?name, %owner, ?reason, "lost"),
        });
    }

    fn emit(&self, level: Level, event: impl FnOnce(&str, OwnerId) + Send + 'static) {
        let (name, owner) = (self.subject.name.clone(), self.owner);
        self.core.events.emit(level, move || event(&name, owner));
    }

    /// Schedules the watchdog's next check for when the lease needs it.
    pub(super) fn reschedule(self: &Arc<Self>) {
        let mut state = self.state();
        let due = state.lease.next_tick();
        self.schedule_at(&mut state, due);
    }

    fn schedule_at(self: &Arc<Self>, state: &mut HoldState, due: Option<Moment>) {
        if state.due != due {
            self.core.schedule.replace(self, state.due, due);
            state.due = due;
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.subject.name)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
