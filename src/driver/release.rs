//! Releases holds: wholly, in part, or by handing them off.

use std::sync::Arc;

use tracing::field::debug;

use super::cleanup_job::CleanupJob;
use super::clock::with_timeout;
use super::hold::Hold;
use super::hold_ref::HoldRef;
use super::release_outcome::ReleaseOutcome;
use super::undo_on_drop::UndoOnDrop;
use super::wait_queues::HandOffOutcome;
use super::{DriverError, no_reply};
use crate::engine::events::emit_in_call;
use crate::protocol::lease::{HoldEnd, LostReason};
use crate::protocol::{Action, Moment, OwnerId, Reply, Request};

/// The state of a hold when a guard has left it.
enum ReleaseKind {
    /// No guard is left: the lock is to be released.
    Last,
    /// The hold was lost before.
    Lost(LostReason),
    /// Other guards of the same owner are left.
    Others,
}

/// How the next holder of a released lock is chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HandOff {
    /// The next waiter of this client, without a request to the store.
    InMemory,
    /// The store chooses the next holder, and its reply says whether the lock was still held.
    ThroughStore,
}

/// Releases a guard's part after work that was done under the lock; fails only if the lock was not held until now.
///
/// A missing reply is no failure: by the clock the lock was held, and the release continues in the background.
pub(crate) async fn release_after_run(hold_ref: HoldRef) -> Result<(), DriverError> {
    let hold = hold_ref.hold().clone();
    match release(hold_ref, HandOff::ThroughStore).await {
        Err(error) if !error.denies_hold() => {
            emit_in_call!(
                hold.core.events,
                "distlock::release",
                WARN,
                { lock: debug(hold.subject.name.clone()), error: debug(error) },
                "the work is done, but the release was not confirmed"
            );
            Ok(())
        }
        outcome => outcome,
    }
}

/// Releases a guard's part and reports whether the lock was still held.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` stores its arguments twice"
)]
pub(crate) fn release(
    hold_ref: HoldRef,
    hand_off: HandOff,
) -> impl Future<Output = Result<(), DriverError>> + Send {
    async move {
        if hold_ref.hold().core.is_forked() {
            std::mem::forget(hold_ref);
            return Err(DriverError::Forked);
        }
        let guard = hold_ref.guard;
        let hold = hold_ref.into_hold();
        let now = hold.now();
        let hand_off_outcome = match hand_off {
            HandOff::InMemory => hold.core.wait_queues.hand_off(&hold, now),
            HandOff::ThroughStore => HandOffOutcome::NotHandedOff { has_waiters: true },
        };
        let has_waiters = match hand_off_outcome {
            HandOffOutcome::HandedOff => {
                hold.notify_ended();
                if planted!(HandedAndReleased) {
                    hold.core.cleanup.push(CleanupJob::Release(hold.clone()));
                }
                return Ok(());
            }
            HandOffOutcome::NotHandedOff { has_waiters } => has_waiters,
        };
        match detach_guard(&hold, guard, now) {
            ReleaseKind::Last => release_in_store(&hold, has_waiters, now).await,
            ReleaseKind::Lost(_) if planted!(LateReleaseIsOk) => Ok(()),
            // Boxed: a rare case should not make the future of the common one larger.
            ReleaseKind::Lost(reason) => Err(DriverError::Lost(
                Box::pin(release_and_ask_reason(&hold, reason)).await,
            )),
            ReleaseKind::Others => Box::pin(sync_count(&hold)).await,
        }
    }
}

/// Releases the part of a guard that is dropped: no caller waits, and nothing may block or fail.
pub(super) fn abandon(hold: &Arc<Hold>, guard: u32) {
    let core = &hold.core;
    if core.is_forked() {
        // The locks, threads and sockets belong to another process, and so does their memory: it must not be freed
        // here.
        std::mem::forget(hold.clone());
        return;
    }
    let now = hold.now();
    if core.wait_queues.hand_off(hold, now) == HandOffOutcome::HandedOff {
        return hold.notify_ended();
    }
    match detach_guard(hold, guard, now) {
        ReleaseKind::Last => {
            hold.notify_ended();
            if !planted!(DroppedGuardKept) {
                core.cleanup.push(CleanupJob::Release(hold.clone()));
            }
        }
        ReleaseKind::Lost(_) => {}
        ReleaseKind::Others => core.cleanup.push(CleanupJob::SyncCount {
            hold: hold.clone(),
            in_doubt: None,
        }),
    }
}

/// Stops renewing and leaves the key to its lease.
pub(crate) fn forget(hold_ref: HoldRef) {
    let guard = hold_ref.guard;
    let hold = hold_ref.into_hold();
    if hold.core.is_forked() {
        return std::mem::forget(hold);
    }
    let now = hold.now();
    let ends = now + hold.remaining();
    let mut state = hold.state();
    let last = state.lease.leave(guard) == 0;
    if !last {
        drop(state);
        return hold.reschedule();
    }
    // However the hold has ended, no guard is left to report it.
    let _ = state.lease.release(now);
    state.outcome = ReleaseOutcome::LeftToExpire;
    hold.unschedule(&mut state);
    drop(state);
    hold.notify_ended();
    hold.core.settings.label.keep_until(ends);
    hold.core.wait_queues.on_released(&hold, None, now);
}

/// Makes acquired permits the caller's own: they have no owner from now on, and are not released automatically any
/// more.
pub(crate) fn detach_permits(hold_ref: HoldRef) -> Result<(), DriverError> {
    if hold_ref.hold().core.is_forked() {
        std::mem::forget(hold_ref);
        return Err(DriverError::Forked);
    }
    let guard = hold_ref.guard;
    let hold = hold_ref.into_hold();
    match detach_guard(&hold, guard, hold.now()) {
        ReleaseKind::Last | ReleaseKind::Others => {
            hold.notify_ended();
            hold.core.acknowledge_key(&hold.subject, hold.owner);
            Ok(())
        }
        // The permits were released when the loss was noticed.
        ReleaseKind::Lost(LostReason::Closed) => Err(DriverError::Closed),
        ReleaseKind::Lost(reason) => Err(DriverError::Lost(reason)),
    }
}

/// Removes a guard from its hold.
fn detach_guard(hold: &Arc<Hold>, guard: u32, now: Moment) -> ReleaseKind {
    let mut state = hold.state();
    let noticed = state.lease.end().is_some();
    if let Some(reason) = state.lease.lost(now) {
        state.lease.mark_lost(reason);
        state.lease.leave(guard);
        drop(state);
        if !noticed {
            hold.on_lost(reason);
        }
        return ReleaseKind::Lost(reason);
    }
    if state.lease.leave(guard) > 0 {
        if planted!(InnerReleaseStopsRenewal) {
            hold.unschedule(&mut state);
            return ReleaseKind::Others;
        }
        drop(state);
        hold.reschedule();
        return ReleaseKind::Others;
    }
    // The hold is not lost: that was checked above, under the same lock.
    let _ = state.lease.release(now);
    // Unscheduled before the release is sent, so that no renewal follows it.
    hold.unschedule(&mut state);
    ReleaseKind::Last
}

/// Releases the lock in the store and lets the next waiter acquire it; `has_waiters` says whether this client may have
/// one.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` stores its arguments twice"
)]
fn release_in_store(
    hold: &Arc<Hold>,
    has_waiters: bool,
    sent: Moment,
) -> impl Future<Output = Result<(), DriverError>> + Send {
    async move {
        let core = &hold.core;
        hold.notify_ended();
        let (final_request, next_owner) = final_request(hold, has_waiters, sent);
        let mut undo_on_drop = UndoOnDrop::new(core, || {
            hold.release_in_doubt();
            let undo = next_owner
                .map(|owner| CleanupJob::undo(core, &hold.subject, owner, hold.terms.lease));
            std::iter::once(CleanupJob::Release(hold.clone())).chain(undo)
        });
        let call = core.call_at(final_request, sent);
        let is_immediate = call.is_ready();
        if !is_immediate {
            undo_on_drop.track_release();
        }
        let reply = call.await;
        let reply = reply.inspect_err(|failure| hold.release_failed(failure));
        let reply = reply.map_err(DriverError::StoreError)?;
        undo_on_drop.disarm();
        hold.on_gone_from_store(&reply);
        let now = if is_immediate { sent } else { hold.now() };
        match (reply, next_owner) {
            (Reply::Granted { token }, Some(owner)) => {
                core.tokens.note(&hold.subject, token);
                core.wait_queues.on_transferred(hold, owner, token, sent);
                Ok(())
            }
            (Reply::Released { subscribers }, _) => {
                core.wait_queues.on_released(hold, Some(subscribers), now);
                Ok(())
            }
            (reply, _) => {
                core.wait_queues.on_released(hold, None, now);
                Err(DriverError::refused(&reply))
            }
        }
    }
}

/// Returns the last request about a hold, and the next owner of the lock if the store agrees to a transfer.
fn final_request(hold: &Arc<Hold>, has_waiters: bool, now: Moment) -> (Request, Option<OwnerId>) {
    let core = &hold.core;
    let own_subscribers = has_waiters
        .then(|| core.wait_queues.may_transfer(hold, now))
        .flatten();
    let Some(own_subscribers) = own_subscribers else {
        let owner = hold.owner;
        return (hold.request(Action::Release { owner, left: 0 }), None);
    };
    let to = core.fresh_owner();
    let transfer = hold.request(Action::Transfer {
        from: hold.owner,
        to,
        lease: hold.terms.lease,
        own_subscribers,
        min_token: core.tokens.seen(&hold.subject),
    });
    (transfer, Some(to))
}

/// Lowers the store's count to the number of guards.
async fn sync_count(hold: &Arc<Hold>) -> Result<(), DriverError> {
    let core = &hold.core;
    let mut undo_on_drop = UndoOnDrop::new(core, || {
        [CleanupJob::SyncCount {
            hold: hold.clone(),
            in_doubt: None,
        }]
    });
    let limit = core.settings.command_timeout;
    // A caller that holds the mutex and is never polled would keep it forever. After the timeout this request is sent
    // without it: what that caller has sent has arrived by then, or is undone.
    let order = with_timeout(
        limit,
        core.waker_executor
            .with_waker_proxy_unpin(Box::pin(hold.count_order().lock())),
    )
    .await;
    let count_request = hold.count_request(|state| {
        // A hold that is left to its lease counts as one more.
        let left = state.lease.count() + u32::from(state.outcome.is_left_to_expire());
        let owner = hold.owner;
        let left = if planted!(InnerReleaseTakesAll) {
            0
        } else {
            left
        };
        (left > 0 || planted!(InnerReleaseTakesAll)).then_some(Action::Release { owner, left })
    });
    let Some((request, immediate)) = count_request else {
        undo_on_drop.disarm();
        drop(order);
        return await_last_release(hold).await;
    };
    let reply = match immediate {
        Some(reply) => reply,
        None => {
            undo_on_drop.track_release();
            core.call(request).await
        }
    };
    let reply = reply.map_err(DriverError::StoreError)?;
    undo_on_drop.disarm();
    drop(order);
    if reply == Reply::Kept {
        return Ok(());
    }
    let is_released = {
        let state = hold.state();
        state.lease.end() == Some(HoldEnd::Released) && !state.outcome.is_left_to_expire()
    };
    if !is_released {
        return Err(hold.refused(&reply));
    }
    // The last guard has left meanwhile, and its release may have arrived first: the lock was lost only if that release
    // found it so.
    match await_last_release(hold).await {
        Err(DriverError::StoreError(failure)) if !failure.is_indeterminate() => {
            Err(DriverError::refused(&reply))
        }
        outcome => outcome,
    }
}

/// Returns the outcome of the last guard's release, for a guard that this release has overtaken.
async fn await_last_release(hold: &Arc<Hold>) -> Result<(), DriverError> {
    let end = hold.state().lease.end();
    if let Some(HoldEnd::Lost(reason)) = end {
        return Err(DriverError::Lost(
            release_and_ask_reason(hold, reason).await,
        ));
    }
    let limit = hold.core.settings.command_timeout;
    let outcome = with_timeout(limit, Box::pin(hold.released())).await;
    outcome.unwrap_or_else(|| Err(DriverError::StoreError(no_reply(limit))))
}

/// Finds out whether an expired hold was merely late or has been taken over by another owner.
async fn release_and_ask_reason(hold: &Arc<Hold>, reason: LostReason) -> LostReason {
    if reason != LostReason::Expired {
        return reason;
    }
    let core = &hold.core;
    let request = hold.request(Action::Release {
        owner: hold.owner,
        left: 0,
    });
    match core.call(request).await {
        Ok(Reply::Taken) => LostReason::TakenOver,
        Ok(_) | Err(_) => reason,
    }
}
