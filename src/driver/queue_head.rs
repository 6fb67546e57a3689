//! The head of a wait queue: the only waiter that sends requests to the store, and subscribes for all waiters behind
//! it.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::debug;

use super::acquire::AcquireParams;
use super::acquire_request::{AcquireOutcome, AttemptOptions, send_acquire};
use super::cleanup_job::CleanupJob;
use super::clock::SleepUntil;
use super::error::LastError;
use super::hold_ref::HoldRef;
use super::queue_entry::QueueEntry;
use super::waiter::WakeReason;
use super::{Core, DriverError, no_reply, require_runtime};
use crate::engine::events::emit_in_call;
use crate::engine::{StoreError, Subscription};
use crate::protocol::acquire::{Acquire, AcquireStep};
use crate::protocol::lease::LostReason;
use crate::protocol::{Moment, OwnerId};

/// The outcome of the head's attempt.
pub(super) enum HeadOutcome {
    Granted(HoldRef, Moment),
    Busy,
    Woken(WakeReason),
}

/// The attempt of one waiter at the head of its queue.
pub(super) struct HeadAttempt<'a> {
    core: &'a Arc<Core>,
    params: &'a AcquireParams,
    machine: Acquire,
    /// The outcome of a request that was sent already.
    outcome: Option<Result<AcquireOutcome, StoreError>>,
    subscription: Option<Arc<Subscription>>,
    failure: LastError,
    /// The owner of the next request; `None` while a request of that owner may be in flight.
    owner: Option<OwnerId>,
    /// When the wait began.
    begun: Moment,
}

/// How long a reader waits behind writers. Writers of another library may wait forever for the readers of
/// that library.
const MAX_WAIT_BEHIND_WRITERS: Duration = Duration::from_secs(60);

impl<'a> HeadAttempt<'a> {
    pub(super) fn new(
        core: &'a Arc<Core>,
        params: &'a AcquireParams,
        begun: Moment,
        deadline: Option<Moment>,
        outcome: Option<Result<AcquireOutcome, StoreError>>,
    ) -> Box<Self> {
        Box::new(Self {
            core,
            params,
            machine: Acquire::new(
                params.subject.kind,
                params.wait_mode,
                deadline,
                core.fresh_seed(),
            ),
            outcome,
            subscription: None,
            failure: LastError::default(),
            owner: None,
            begun,
        })
    }

    /// Sends requests, subscribes and sleeps until the waiter has the lock, is woken for another reason, or its
    /// deadline has passed.
    pub(super) async fn run(
        &mut self,
        entry: &mut QueueEntry<'_>,
        not_before: Option<Moment>,
    ) -> Result<HeadOutcome, DriverError> {
        if entry.is_registered() {
            self.machine.reached_head(entry.is_busy());
        }
        if self.outcome.is_none()
            && let Some(subscription) = entry.subscription()
        {
            // The queue has a subscription already: a request sent from now on misses no release.
            self.subscription = Some(subscription);
            self.machine.subscribed();
        }
        if not_before.is_some() {
            // No notification is awaited here, on purpose: it would be about this client's own release.
            tokio::select! {
                biased;
                reason = entry.next_wake() => return Ok(HeadOutcome::Woken(reason)),
                () = self.sleep(not_before) => {}
            }
        }
        let mut step = match self.outcome {
            Some(_) => AcquireStep::Send,
            None => self.machine.woken(self.core.clock.now()),
        };
        loop {
            require_runtime().map_err(DriverError::StoreError)?;
            step = match step {
                AcquireStep::Send => {
                    let (outcome, pending_wake) = match self.outcome.take() {
                        Some(outcome) => (outcome, None),
                        None => match self.send_request(entry).await {
                            Ok(outcome) => outcome,
                            Err(reason) => return Ok(HeadOutcome::Woken(reason)),
                        },
                    };
                    let now = self.core.clock.now();
                    match outcome {
                        Ok(AcquireOutcome::Granted(hold_ref, now)) => {
                            return Ok(HeadOutcome::Granted(hold_ref, now));
                        }
                        Ok(AcquireOutcome::LeaseExpired) => {
                            return Err(DriverError::Lost(LostReason::Expired));
                        }
                        Ok(AcquireOutcome::Busy { owner, ttl }) => {
                            self.owner = Some(owner);
                            self.failure.forget();
                            if self.subscription.is_none() {
                                emit_in_call!(
                                    self.core.events,
                                    "distlock::acquire",
                                    DEBUG,
                                    { lock: debug(self.params.subject.name.clone()), ttl: debug(ttl) },
                                    "waiting: another owner holds the lock"
                                );
                            }
                            entry.register(self.params);
                            if self.params.polls() && entry.has_subscribed_waiters() {
                                self.machine.subscribe_instead();
                            }
                            entry.note_status(true);
                            if self
                                .subscription
                                .as_ref()
                                .is_some_and(|subscription| subscription.is_closed())
                            {
                                self.subscription = None;
                                entry.drop_subscription();
                                self.machine.unsubscribed();
                            }
                            if self.is_held_by_own_owner() {
                                return Ok(HeadOutcome::Woken(WakeReason::Reenter));
                            }
                            let step = self.machine.busy(ttl, now);
                            match (pending_wake, step) {
                                (Some(again), AcquireStep::Sleep(_)) => {
                                    return Ok(HeadOutcome::Woken(again));
                                }
                                (_, step) => step,
                            }
                        }
                        Err(failure) => {
                            self.core.ensure_usable()?;
                            entry.note_status(false);
                            let transient = failure.is_transient();
                            let next = self.machine.failed(transient, now);
                            self.failure.note(failure, next);
                            next
                        }
                    }
                }
                AcquireStep::Subscribe => {
                    let result = tokio::select! {
                        biased;
                        reason = entry.next_wake() => return Ok(HeadOutcome::Woken(reason)),
                        result = self.subscribe(entry) => result,
                    };
                    match result {
                        Ok(subscription) => {
                            self.subscription = Some(subscription);
                            let step = self.machine.subscribed();
                            if planted!(SubscribedTooLate) {
                                let kind = self.params.subject.kind;
                                AcquireStep::Sleep(self.core.clock.now() + kind.longest_sleep())
                            } else {
                                step
                            }
                        }
                        Err(failure) if failure.is_transient() => {
                            emit_in_call!(
                                self.core.events,
                                "distlock::acquire",
                                DEBUG,
                                {
                                    lock: debug(self.params.subject.name.clone()),
                                    error: failure.detail.clone(),
                                },
                                "cannot subscribe; polling instead"
                            );
                            self.machine.subscribe_failed(self.core.clock.now())
                        }
                        Err(failure) => return Err(DriverError::StoreError(failure)),
                    }
                }
                AcquireStep::Sleep(until) => {
                    tokio::select! {
                        biased;
                        reason = entry.next_wake() => return Ok(HeadOutcome::Woken(reason)),
                        () = self.core.waker_executor.with_waker_proxy(next_notification(self.subscription.as_deref())) => {}
                        () = self.sleep(Some(until)) => {}
                    }
                    self.machine.woken(self.core.clock.now())
                }
                AcquireStep::Busy => return Ok(HeadOutcome::Busy),
                AcquireStep::TimedOut => return Err(self.failure.timeout_error()),
                AcquireStep::Fail => return Err(self.failure.fatal()),
            }
        }
    }

    /// Sends one request. Also returns whether the head was woken to send another meanwhile. A lock that is handed off
    /// first is taken instead; the request in flight is then undone.
    async fn send_request(
        &mut self,
        entry: &QueueEntry<'_>,
    ) -> Result<(Result<AcquireOutcome, StoreError>, Option<WakeReason>), WakeReason> {
        let owner = self.owner.take();
        let owner = owner.unwrap_or_else(|| self.core.fresh_owner_for(self.params));
        let sent = self.core.clock.now();
        let options = AttemptOptions {
            bypass_writers: sent.since(self.begun) >= MAX_WAIT_BEHIND_WRITERS,
            ..self.params.waiting_options()
        };
        let deadline = self.machine.deadline();
        let sending = send_acquire(self.core, self.params, owner, options, sent, deadline);
        let mut sending = std::pin::pin!(sending);
        let mut pending_wake = None;
        loop {
            tokio::select! {
                biased;
                reason = entry.next_wake() => match reason {
                    WakeReason::SendRequest { .. } => pending_wake = Some(reason),
                    WakeReason::Closed | WakeReason::HandedOff(_) | WakeReason::Reenter => return Err(reason),
                },
                outcome = &mut sending => return Ok((outcome, pending_wake)),
            }
        }
    }

    /// Returns the queue's subscription, or a new one; confirmed in either case.
    async fn subscribe(&self, entry: &QueueEntry<'_>) -> Result<Arc<Subscription>, StoreError> {
        if let Some(subscription) = entry.subscription() {
            return Ok(subscription);
        }
        let limit = self.core.request_timeout(self.machine.deadline());
        let engine = self.core.engine.clone();
        let pending = engine.subscribe(self.params.subject.channel());
        tokio::select! {
            subscription = self.core.waker_executor.with_waker_proxy_unpin(pending) => Ok(entry.share_subscription(subscription?)),
            () = self.sleep(Some(self.core.clock.now() + limit)) => Err(no_reply(limit)),
        }
    }

    /// Returns whether the lock is busy because the waiter's own local owner has acquired it meanwhile.
    fn is_held_by_own_owner(&self) -> bool {
        let AcquireParams {
            subject,
            local_owner,
            ..
        } = self.params;
        local_owner.is_some_and(|local_owner| self.core.owners.find(local_owner, subject).is_some())
    }

    fn sleep(&self, until: Option<Moment>) -> SleepUntil<'_> {
        self.core.clock.sleep_until(until)
    }
}

/// A waiter that stops waiting leaves nothing in the store.
impl Drop for HeadAttempt<'_> {
    fn drop(&mut self) {
        let AcquireParams { subject, terms, .. } = self.params;
        if !self.params.registers_waiters() || self.core.is_forked() {
            return;
        }
        let outcome = match self.outcome {
            Some(Ok(AcquireOutcome::Busy { owner, .. })) => Some(owner),
            _ => None,
        };
        if let Some(owner) = self.owner.or(outcome) {
            let leave = CleanupJob::leave_queue(self.core, subject, owner, terms.lease);
            self.core.cleanup.push(leave);
        }
    }
}

async fn next_notification(subscription: Option<&Subscription>) {
    match subscription {
        Some(subscription) => subscription.notified().await,
        None => std::future::pending().await,
    }
}
