//! Drives one acquisition: the state machine in `protocol/acquire.rs` decides, this module carries its steps out.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::{debug, display};

use super::acquire_request::{AcquireOutcome, AttemptOptions, send_acquire, send_acquire_now};
use super::hold_ref::HoldRef;
use super::owners::LocalOwner;
use super::queue_entry::QueueEntry;
use super::queue_head::{HeadAttempt, HeadOutcome};
use super::reenter::reenter;
use super::server_queue::wait_in_server_queue;
use super::wait_queues::GrantSource;
use super::waiter::WakeReason;
use super::{Core, DriverError, require_runtime};
use crate::engine::StoreError;
use crate::engine::events::emit_in_call;
use crate::protocol::acquire::WaitMode;
use crate::protocol::lease::{LeaseTerms, LostReason};
use crate::protocol::{Kind, Moment, OwnerId, PermitRequest, Subject};

/// The parameters of one acquisition.
#[derive(Clone, Debug)]
pub(crate) struct AcquireParams {
    pub(crate) subject: Subject,
    pub(crate) terms: LeaseTerms,
    pub(crate) wait_mode: WaitMode,
    pub(crate) local_owner: Option<LocalOwner>,
    /// The owner's hold on the other side of a read/write lock, on the strength of which the lock is granted.
    pub(crate) other_side: Option<OwnerId>,
    /// The number of permits, for a semaphore.
    pub(crate) permits: PermitRequest,
}

impl AcquireParams {
    /// Returns whether the waiter polls instead of subscribing.
    pub(super) const fn polls(&self) -> bool {
        matches!(self.wait_mode, WaitMode::Poll { .. })
    }

    /// Returns whether the store knows that this caller waits.
    pub(super) const fn registers_waiters(&self) -> bool {
        self.subject.kind.registers_waiters(self.permits.count)
    }

    /// Returns the options of a request whose sender will wait.
    pub(super) fn waiting_options(&self) -> AttemptOptions {
        let kind = self.subject.kind;
        AttemptOptions {
            waiter_ttl: self.registers_waiters().then_some(kind.longest_sleep() * 3),
            bypass_writers: false,
        }
    }
}

/// How long a caller waits for the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    /// The caller waits without a limit.
    Forever,
    /// The caller sends one request and does not wait.
    TryOnce,
    /// The caller waits this long, everything included.
    Timeout(Duration),
}

impl WaitLimit {
    pub(crate) const fn timeout(wait: Duration) -> Self {
        if wait.is_zero() {
            return Self::TryOnce;
        }
        Self::Timeout(wait)
    }

    /// Returns the absolute deadline of a wait that started at `begun`. `TryOnce` has none: it sends one request and
    /// waits for the reply, however long that takes.
    pub(super) fn deadline(self, begun: Moment) -> Option<Moment> {
        match self {
            Self::TryOnce | Self::Forever => None,
            Self::Timeout(wait) if planted!(GivesUpEarly) => Some(begun + wait / 2),
            Self::Timeout(wait) => Some(begun + wait),
        }
    }
}

/// Acquires the lock; `None` if another owner holds it and the wait limit has passed.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` stores its arguments twice"
)]
pub(crate) fn acquire(
    core: &Arc<Core>,
    params: &AcquireParams,
    wait_limit: WaitLimit,
) -> impl Future<Output = Result<Option<HoldRef>, DriverError>> + Send {
    async move {
        // A store that replies without I/O must not starve other tasks. Before the clock is read: other tasks may run
        // for any time here.
        tokio::task::coop::consume_budget().await;
        core.ensure_usable()?;
        // The clock is read seldom: on the fast path reading it would be most of the work.
        let begun = core.clock.now();
        let deadline = wait_limit.deadline(begun);
        let mut got = reenter(core, params, deadline).await?;
        let has_other_side = got.is_none() && core.other_side(params).is_some();
        if has_other_side {
            // The request bypasses the wait queue: behind another waiter, which waits for this owner, it would wait for
            // itself.
            got = Box::pin(try_once(core, params, begun, None)).await?;
            let waits = !matches!(wait_limit, WaitLimit::TryOnce);
            if got.is_none() && waits && params.subject.kind == Kind::Write {
                return Err(DriverError::WouldDeadlock);
            }
        }
        if got.is_none() {
            got = match wait_limit {
                WaitLimit::TryOnce if has_other_side => None,
                WaitLimit::TryOnce => Box::pin(try_once(core, params, begun, None)).await?,
                WaitLimit::Forever | WaitLimit::Timeout(_)
                    if params.subject.kind.has_server_queue() =>
                {
                    Box::pin(wait_in_server_queue(core, params, deadline)).await?
                }
                WaitLimit::Forever | WaitLimit::Timeout(_) => {
                    wait_in_queue(core, params, deadline, begun).await?
                }
            };
        }
        if let Some(hold_ref) = &got {
            // A client that was closed meanwhile has released the holds that it knew of, but not yet this one. And a
            // grant that arrived before a fork exists in two processes.
            core.ensure_usable()?;
            emit_in_call!(
                core.events,
                "distlock::acquire",
                DEBUG,
                {
                    lock: debug(params.subject.name.clone()),
                    owner: display(hold_ref.hold().owner),
                    waited: debug(core.clock.now().since(begun)),
                },
                "granted"
            );
        }
        Ok(got)
    }
}

/// Acquires the other side of a read/write lock for the holder of one side, if the store allows it; `None` if others
/// read.
pub(crate) async fn acquire_other_side(
    core: &Arc<Core>,
    params: &AcquireParams,
) -> Result<Option<HoldRef>, DriverError> {
    core.ensure_usable()?;
    match reenter(core, params, None).await? {
        Some(hold_ref) => Ok(Some(hold_ref)),
        None => try_once(core, params, core.clock.now(), None).await,
    }
}

/// Sends one request to the store, bypassing the wait queue, without waiting for other holders.
pub(super) async fn try_once(
    core: &Arc<Core>,
    params: &AcquireParams,
    now: Moment,
    deadline: Option<Moment>,
) -> Result<Option<HoldRef>, DriverError> {
    let owner = core.fresh_owner_for(params);
    let outcome = tokio::select! {
        biased;
        outcome = send_acquire(core, params, owner, AttemptOptions::default(), now, deadline) => outcome,
        () = core.closed() => return Err(DriverError::Closed),
    };
    match outcome {
        Ok(AcquireOutcome::Granted(hold_ref, now)) => {
            core.wait_queues
                .granted(hold_ref.hold(), GrantSource::Bypass, now);
            Ok(Some(hold_ref))
        }
        Ok(AcquireOutcome::LeaseExpired) => Err(DriverError::Lost(LostReason::Expired)),
        // The same local owner may have acquired the lock meanwhile: for that owner it is not busy.
        Ok(AcquireOutcome::Busy { .. }) => reenter(core, params, deadline).await,
        Err(_) if planted!(SilenceMeansBusy) => Ok(None),
        Err(failure) => {
            core.ensure_usable()?;
            Err(DriverError::StoreError(failure))
        }
    }
}

/// Waits in the queue. The path of a waiting acquire:
///
/// 1. [`QueueEntry::enter`] (`queue_entry`) enters the local queue of the name (`wait_queues`, `wait_queue`).
/// 2. The first in the queue is its head and sends its first request at once. The others sleep in their entry until
///    their `waiter` is woken, with a [`WakeReason`].
/// 3. Woken with a hold that was handed off, a waiter is done; woken to send a request, it is the new head.
/// 4. The head runs a [`HeadAttempt`] (`queue_head`): it subscribes, sleeps and sends requests as
///    `protocol::acquire` decides, and returns to 3 if it is woken for something else.
/// 5. Each request is an `acquire_request`, which `undo_on_drop` undoes in the background if its outcome is unknown.
/// 6. A grant makes the head leave the queue (`QueueEntry::granted`); dropping the entry lets the next waiter go on.
///
/// The future is small, because ten thousand of them may wait here: the state that only the head
/// needs is boxed.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` stores its arguments twice"
)]
fn wait_in_queue(
    core: &Arc<Core>,
    params: &AcquireParams,
    deadline: Option<Moment>,
    begun: Moment,
) -> impl Future<Output = Result<Option<HoldRef>, DriverError>> + Send {
    async move {
        let (mut entry, reason) = QueueEntry::enter(core, params, begun);
        let mut attempt = None;
        let mut reason = match reason {
            Some(WakeReason::SendRequest { not_before: None }) => {
                // Usually no other waiter is here.
                let owner = core.fresh_owner_for(params);
                let options = params.waiting_options();
                let outcome = match send_acquire_now(core, params, owner, options, begun) {
                    Some(outcome) => outcome,
                    None => Box::pin(first_request(core, params, owner, begun, deadline)).await?,
                };
                match outcome {
                    Ok(AcquireOutcome::Granted(hold_ref, now)) => {
                        entry.granted(hold_ref.hold(), now);
                        return Ok(Some(hold_ref));
                    }
                    outcome => {
                        // From here on, dropping the attempt removes what the store knows of this waiter.
                        attempt = Some(HeadAttempt::new(
                            core,
                            params,
                            begun,
                            deadline,
                            Some(outcome),
                        ));
                        if core.is_closed() {
                            return Err(DriverError::Closed);
                        }
                    }
                }
                WakeReason::SendRequest { not_before: None }
            }
            Some(reason) => reason,
            None => match entry.wait_to_be_woken(deadline).await {
                Some(reason) => reason,
                None => return wait_timed_out(&entry),
            },
        };
        loop {
            let not_before = match reason {
                WakeReason::HandedOff(hold_ref) => {
                    entry.set_handed_off();
                    return Ok(Some(hold_ref));
                }
                WakeReason::Closed => return Err(DriverError::Closed),
                WakeReason::Reenter => {
                    if let Some(hold_ref) = reenter(core, params, deadline).await? {
                        return Ok(Some(hold_ref));
                    }
                    // The hold has ended meanwhile; the head of the queue sends the next request.
                    if entry.is_head() {
                        reason = WakeReason::SendRequest { not_before: None };
                        continue;
                    }
                    match entry.wait_to_be_woken(deadline).await {
                        Some(next) => reason = next,
                        None => return wait_timed_out(&entry),
                    }
                    continue;
                }
                WakeReason::SendRequest { not_before } => not_before,
            };
            let head = attempt
                .get_or_insert_with(|| HeadAttempt::new(core, params, begun, deadline, None));
            match Box::pin(head.run(&mut entry, not_before)).await? {
                HeadOutcome::Granted(hold_ref, now) => {
                    entry.granted(hold_ref.hold(), now);
                    return Ok(Some(hold_ref));
                }
                HeadOutcome::Busy => return Ok(None),
                HeadOutcome::Woken(next) => reason = next,
            }
        }
    }
}

/// Sends the first request, before anything is known of the lock.
async fn first_request(
    core: &Arc<Core>,
    params: &AcquireParams,
    owner: OwnerId,
    sent: Moment,
    deadline: Option<Moment>,
) -> Result<Result<AcquireOutcome, StoreError>, DriverError> {
    tokio::select! {
        biased;
        outcome = send_acquire(core, params, owner, params.waiting_options(), sent, deadline) => Ok(outcome),
        () = core.closed() => Err(DriverError::Closed),
    }
}

/// Returns the result of a wait that timed out in the queue, or for which no timer can run.
fn wait_timed_out(entry: &QueueEntry<'_>) -> Result<Option<HoldRef>, DriverError> {
    require_runtime().map_err(DriverError::StoreError)?;
    match entry.is_busy() {
        true => Ok(None),
        false => Err(DriverError::TimedOut(None)),
    }
}
