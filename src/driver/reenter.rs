//! Acquires a lock once more for an owner that holds it. A re-entry bypasses the wait queue: behind another waiter,
//! which waits for this owner, it would wait for itself.

use std::sync::Arc;

use super::acquire::AcquireParams;
use super::cleanup_job::CleanupJob;
use super::clock::with_timeout;
use super::hold::Hold;
use super::hold_ref::HoldRef;
use super::undo_on_drop::UndoOnDrop;
use super::{Core, DriverError};
use crate::protocol::lease::LeaseTerms;
use crate::protocol::rw::MAX_READ_HOLDS;
use crate::protocol::{Action, Entry, Kind, Moment, PermitRequest, Reply};

/// Acquires the lock once more for an owner that holds it; `None` if it does not.
pub(super) async fn reenter(
    core: &Arc<Core>,
    params: &AcquireParams,
    deadline: Option<Moment>,
) -> Result<Option<HoldRef>, DriverError> {
    let hold = params
        .local_owner
        .and_then(|local_owner| core.owners.find(local_owner, &params.subject));
    match hold {
        // Boxed: most callers have no local owner, and need not carry the size of this future.
        Some(hold) => Box::pin(join_hold(core, params, hold, deadline)).await,
        None => Ok(None),
    }
}

/// Adds a guard to this hold; `None` if the hold has ended.
async fn join_hold(
    core: &Arc<Core>,
    params: &AcquireParams,
    hold: Arc<Hold>,
    deadline: Option<Moment>,
) -> Result<Option<HoldRef>, DriverError> {
    let guard = {
        let now = hold.now();
        let mut state = hold.state();
        if state.lease.end().is_some() {
            return Ok(None);
        }
        if let Some(reason) = state.lease.lost(now) {
            // The expiry was not noticed before. The hold has ended, and the lock has to be acquired anew.
            drop(state);
            hold.lose(reason);
            return Ok(None);
        }
        if params.subject.kind == Kind::Read && state.lease.count() >= MAX_READ_HOLDS {
            return Err(DriverError::TooManyReads);
        }
        // Counted before the request is sent: from now on the releases of the other guards are partial.
        state.lease.join(params.terms, now)
    };
    let hold_ref = HoldRef::new(hold.clone(), guard);
    // A caller that holds the mutex and is never polled would keep it forever. After the timeout this request is sent
    // without it: what that caller has sent has arrived by then, or is undone.
    let order = with_timeout(
        core.request_timeout(deadline),
        core.waker_executor
            .with_waker_proxy_unpin(Box::pin(hold.count_order().lock())),
    )
    .await;
    let LeaseTerms { lease, .. } = params.terms;
    let (mut attempt, mut count) = (0, 0);
    let sent = hold.now();
    let count_request = hold.count_request(|state| {
        state.acquire_seq += 1;
        (attempt, count) = (state.acquire_seq, state.lease.count());
        Some(Action::Acquire {
            owner: hold.owner,
            entry: Entry::Reentry { attempt, count },
            lease,
            min_token: hold.token,
            waiter_ttl: None,
            other_side: None,
            bypass_writers: false,
            permits: PermitRequest::ONE,
        })
    });
    let (request, immediate) =
        count_request.expect("the closure always returns an action, so there is a request");
    let mut undo_on_drop = UndoOnDrop::new(core, || {
        [CleanupJob::SyncCount {
            hold: hold.clone(),
            in_doubt: Some(attempt),
        }]
    });
    let reply = match immediate {
        Some(reply) => reply,
        None => undo_on_drop.send(request, deadline).await,
    };
    let reply = match reply {
        Ok(reply) => reply,
        Err(failure) => {
            if !failure.is_indeterminate() || planted!(ReentryNotUndone) {
                undo_on_drop.disarm();
            }
            core.ensure_usable()?;
            return Err(DriverError::StoreError(failure));
        }
    };
    let granted = matches!(reply, Reply::Granted { .. });
    if granted || reply.refusal().is_some() {
        undo_on_drop.disarm();
    }
    drop(order);
    if !granted {
        return Err(hold.refused(&reply));
    }
    hold.extended(lease, sent);
    if hold.count() < count {
        // A guard was released meanwhile, and its request for the count may have come before this request raised the count again.
        core.cleanup.push(CleanupJob::SyncCount {
            hold: hold.clone(),
            in_doubt: None,
        });
    }
    match hold.lost() {
        Some(reason) => Err(DriverError::Lost(reason)),
        None => Ok(Some(hold_ref)),
    }
}
