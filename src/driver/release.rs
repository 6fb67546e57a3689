//! Gives holds back: wholly, in part, or by passing them on.

use std::sync::Arc;

use tracing::field::debug;

use super::claim::Claim;
use super::clock::within;
use super::hold::Hold;
use super::job::Job;
use super::outcome::Outcome;
use super::unfinished::Unfinished;
use super::waiters::Handed;
use super::{Trouble, no_answer};
use crate::engine::events::emit_in_call;
use crate::protocol::lease::{End, LostReason};
use crate::protocol::{Action, Moment, OwnerId, Reply, Request};

/// What a guard leaves behind.
enum Parting {
    /// Nothing: the lock is to be given back.
    Last,
    /// It was lost before.
    Lost(LostReason),
    /// Other guards of the same owner.
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

/// Releases a claim after work that was done under it; fails only if the lock was not held until now.
///
/// A missing reply does not fail it: by the clock the lock was held, and the release goes on in the background.
pub(crate) async fn conclude(claim: Claim) -> Result<(), Trouble> {
    let hold = claim.hold().clone();
    match release(claim, HandOff::ThroughStore).await {
        Err(trouble) if !trouble.denies_hold() => {
            emit_in_call!(
                hold.core.events,
                WARN,
                { name: debug(hold.subject.name.clone()), trouble: debug(trouble) },
                "the work is done, but the release was not confirmed"
            );
            Ok(())
        }
        concluded => concluded,
    }
}

/// Gives a claim back and says whether it was still ours.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice"
)]
pub(crate) fn release(
    claim: Claim,
    hand_off: HandOff,
) -> impl Future<Output = Result<(), Trouble>> + Send {
    async move {
        if claim.hold().core.is_forked() {
            std::mem::forget(claim);
            return Err(Trouble::Forked);
        }
        let guard = claim.guard;
        let hold = claim.into_hold();
        let now = hold.now();
        let handed = match hand_off {
            HandOff::InMemory => hold.core.waiters.hand_on(&hold, now),
            HandOff::ThroughStore => Handed::Not { wanted: true },
        };
        let wanted = match handed {
            Handed::On => {
                hold.say_ended();
                if planted!(HandedAndReleased) {
                    hold.core.cleanup.push(Job::Release(hold.clone()));
                }
                return Ok(());
            }
            Handed::Not { wanted } => wanted,
        };
        match part(&hold, guard, now) {
            Parting::Last => give_back(&hold, wanted, now).await,
            // Boxed: what is seldom should not make the rest long.
            Parting::Lost(reason) => Err(Trouble::Lost(Box::pin(find_out(&hold, reason)).await)),
            Parting::Others => Box::pin(recount(&hold)).await,
        }
    }
}

/// The same for a guard that is dropped: nobody waits, nothing may block or fail.
pub(super) fn abandon(hold: &Arc<Hold>, guard: u32) {
    let core = &hold.core;
    if core.is_forked() {
        // Another process's locks, threads and sockets: not even their memory is ours to free.
        std::mem::forget(hold.clone());
        return;
    }
    let now = hold.now();
    if core.waiters.hand_on(hold, now) == Handed::On {
        return hold.say_ended();
    }
    match part(hold, guard, now) {
        Parting::Last => {
            hold.say_ended();
            if !planted!(DroppedGuardKept) {
                core.cleanup.push(Job::Release(hold.clone()));
            }
        }
        Parting::Lost(_) => {}
        Parting::Others => core.cleanup.push(Job::Recount {
            hold: hold.clone(),
            in_doubt: None,
        }),
    }
}

/// Stops renewing and leaves the key to its lease.
pub(crate) fn forget(claim: Claim) {
    let guard = claim.guard;
    let hold = claim.into_hold();
    if hold.core.is_forked() {
        return std::mem::forget(hold);
    }
    let now = hold.now();
    let ends = now + hold.remaining();
    let mut state = hold.state();
    let last = state.lease.leave(guard) == 0;
    if !last {
        drop(state);
        return hold.plan();
    }
    // Over for us, however it ends: nobody is left to be told.
    let _ = state.lease.release(now);
    state.outcome = Outcome::Left;
    hold.unwatch(&mut state);
    drop(state);
    hold.say_ended();
    hold.core.settings.label.outlive(ends);
    hold.core.waiters.vacate(&hold, None, now);
}

/// What was taken is the caller's from now on, and nobody's: it is not given back by itself any more.
pub(crate) fn keep(claim: Claim) -> Result<(), Trouble> {
    if claim.hold().core.is_forked() {
        std::mem::forget(claim);
        return Err(Trouble::Forked);
    }
    let guard = claim.guard;
    let hold = claim.into_hold();
    match part(&hold, guard, hold.now()) {
        Parting::Last | Parting::Others => {
            hold.say_ended();
            hold.core.settle_deed(&hold.subject, hold.owner);
            Ok(())
        }
        // Given back by whoever noticed.
        Parting::Lost(LostReason::Closed) => Err(Trouble::Closed),
        Parting::Lost(reason) => Err(Trouble::Lost(reason)),
    }
}

/// Takes a guard off its hold.
fn part(hold: &Arc<Hold>, guard: u32, now: Moment) -> Parting {
    let mut state = hold.state();
    let noticed = state.lease.end().is_some();
    if let Some(reason) = state.lease.lost(now) {
        state.lease.lose(reason);
        state.lease.leave(guard);
        drop(state);
        if !noticed {
            hold.over(reason);
        }
        return Parting::Lost(reason);
    }
    if state.lease.leave(guard) > 0 {
        if planted!(InnerReleaseStopsRenewal) {
            hold.unwatch(&mut state);
            return Parting::Others;
        }
        drop(state);
        hold.plan();
        return Parting::Others;
    }
    // Cannot be lost: that was looked at above, under the same lock.
    let _ = state.lease.release(now);
    // Before the release is sent: a renewal must not follow it.
    hold.unwatch(&mut state);
    Parting::Last
}

/// Gives the lock back through the store, and lets the next in line have it, if it may be `wanted` here.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice"
)]
fn give_back(
    hold: &Arc<Hold>,
    wanted: bool,
    sent: Moment,
) -> impl Future<Output = Result<(), Trouble>> + Send {
    async move {
        let core = &hold.core;
        hold.say_ended();
        let (farewell, taker) = farewell(hold, wanted, sent);
        let mut unfinished = Unfinished::new(core, || {
            hold.release_in_doubt();
            let undo = taker.map(|owner| Job::undo(core, &hold.subject, owner, hold.terms.lease));
            std::iter::once(Job::Release(hold.clone())).chain(undo)
        });
        let calling = core.call_at(farewell, sent);
        let at_once = calling.is_answered();
        if !at_once {
            unfinished.begin();
        }
        let reply = calling.await;
        let reply = reply.inspect_err(|failure| hold.release_failed(failure));
        let reply = reply.map_err(Trouble::Failure)?;
        unfinished.settled();
        hold.has_left(&reply);
        let now = if at_once { sent } else { hold.now() };
        match (reply, taker) {
            (Reply::Granted { token }, Some(owner)) => {
                core.tokens.note(&hold.subject, token);
                core.waiters.deliver(hold, owner, token, sent);
                Ok(())
            }
            (Reply::Released { listeners }, _) => {
                core.waiters.vacate(hold, Some(listeners), now);
                Ok(())
            }
            (reply, _) => {
                core.waiters.vacate(hold, None, now);
                Err(Trouble::refused(&reply))
            }
        }
    }
}

/// What the store is told, and who is to have the lock next if it agrees.
fn farewell(hold: &Arc<Hold>, wanted: bool, now: Moment) -> (Request, Option<OwnerId>) {
    let core = &hold.core;
    let own_listeners = wanted.then(|| core.waiters.may_pass(hold, now)).flatten();
    let Some(own_listeners) = own_listeners else {
        let owner = hold.owner;
        return (hold.request(Action::Release { owner, left: 0 }), None);
    };
    let to = core.fresh_owner();
    let pass = hold.request(Action::Pass {
        from: hold.owner,
        to,
        lease: hold.terms.lease,
        own_listeners,
        seen: core.tokens.seen(&hold.subject),
    });
    (pass, Some(to))
}

/// Brings the store's count down to the number of guards.
async fn recount(hold: &Arc<Hold>) -> Result<(), Trouble> {
    let core = &hold.core;
    let mut unfinished = Unfinished::new(core, || {
        [Job::Recount {
            hold: hold.clone(),
            in_doubt: None,
        }]
    });
    let limit = core.settings.command_timeout;
    // A re-entry that nobody polls would keep it for ever; after this long its request is no longer new.
    let order = within(limit, core.wakeups.shield(Box::pin(hold.recount().lock()))).await;
    let counted = hold.counted(|state| {
        // One that is left to its lease counts.
        let left = state.lease.count() + u32::from(state.outcome.is_left());
        let owner = hold.owner;
        let left = if planted!(InnerReleaseTakesAll) {
            0
        } else {
            left
        };
        (left > 0 || planted!(InnerReleaseTakesAll)).then_some(Action::Release { owner, left })
    });
    let Some((request, answer)) = counted else {
        unfinished.settled();
        drop(order);
        return overtaken(hold).await;
    };
    let reply = match answer {
        Some(answer) => answer,
        None => {
            unfinished.begin();
            core.call(request).await
        }
    };
    let reply = reply.map_err(Trouble::Failure)?;
    unfinished.settled();
    drop(order);
    if reply == Reply::Kept {
        return Ok(());
    }
    let is_released = {
        let state = hold.state();
        state.lease.end() == Some(End::Released) && !state.outcome.is_left()
    };
    if !is_released {
        return Err(hold.refused(&reply));
    }
    // The last guard has gone meanwhile, and its release may have come first: the lock was lost only if that found it so.
    match overtaken(hold).await {
        Err(Trouble::Failure(failure)) if !failure.leaves_doubt() => Err(Trouble::refused(&reply)),
        outcome => outcome,
    }
}

/// What the release of the last guard comes to, for a guard that it has overtaken.
async fn overtaken(hold: &Arc<Hold>) -> Result<(), Trouble> {
    let end = hold.state().lease.end();
    if let Some(End::Lost(reason)) = end {
        return Err(Trouble::Lost(find_out(hold, reason).await));
    }
    let limit = hold.core.settings.command_timeout;
    let outcome = within(limit, Box::pin(hold.released())).await;
    outcome.unwrap_or_else(|| Err(Trouble::Failure(no_answer(limit))))
}

/// Whether an expired hold was merely late or has been taken by somebody else.
async fn find_out(hold: &Arc<Hold>, reason: LostReason) -> LostReason {
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
