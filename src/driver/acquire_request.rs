//! One acquire request to the store and its outcome.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::AcquireParams;
use super::cleanup_job::CleanupJob;
use super::hold::Hold;
use super::hold_ref::HoldRef;
use super::undo_on_drop::UndoOnDrop;
use super::{Core, unexpected_reply};
use crate::engine::StoreError;
use crate::protocol::{Action, CounterOp, Entry, IdempotencyKey, Moment, OwnerId, Reply, Request};

/// The outcome of one acquire request.
pub(super) enum AcquireOutcome {
    /// Another owner holds the lock, for this long. The store keeps nothing of this request's owner.
    Busy {
        owner: OwnerId,
        ttl: Option<Duration>,
    },
    /// The lock was granted; the moment is when the reply arrived.
    Granted(HoldRef, Moment),
    /// The lock was granted, but the lease expired before the reply arrived.
    LeaseExpired,
}

/// Options of an acquire request beside the lock's parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttemptOptions {
    /// How long the store takes this waiter for present, where the store registers waiters.
    pub(super) waiter_ttl: Option<Duration>,
    /// Whether a reader bypasses waiting writers.
    pub(super) bypass_writers: bool,
}

/// Sends one acquire request for a lock that the owner does not hold yet. Dropping the future, or losing the reply, has
/// the request undone, and its owner must not be used again; the outcome `Busy` returns the owner. `sent`
/// is read before sending, so the lease in the store cannot have started earlier.
pub(super) async fn send_acquire(
    core: &Arc<Core>,
    params: &AcquireParams,
    owner: OwnerId,
    options: AttemptOptions,
    sent: Moment,
    deadline: Option<Moment>,
) -> Result<AcquireOutcome, StoreError> {
    let request_id = RequestId::new(core, params, owner);
    let undo = || [undo(core, params, request_id)];
    let mut undo_on_drop = UndoOnDrop::new(core, undo);
    let request = request_id.request(core, params, options);
    let reply = match undo_on_drop.send(request, deadline).await {
        Ok(reply) => reply,
        Err(failure) => {
            // A store that registers waiters may know this one from an earlier request.
            if !failure.is_indeterminate() && !params.registers_waiters() {
                undo_on_drop.disarm();
                request_id.acknowledge(core, params);
            }
            return Err(failure);
        }
    };
    let outcome = interpret_reply(core, params, request_id, sent, core.clock.now(), &reply);
    if matches!(
        outcome,
        Ok(AcquireOutcome::Granted(..) | AcquireOutcome::Busy { .. })
    ) {
        undo_on_drop.disarm();
    }
    outcome
}

/// Sends the same request to a store that replies without I/O; `None` for any other store.
pub(super) fn send_acquire_now(
    core: &Arc<Core>,
    params: &AcquireParams,
    owner: OwnerId,
    options: AttemptOptions,
    sent: Moment,
) -> Option<Result<AcquireOutcome, StoreError>> {
    let request_id = RequestId::new(core, params, owner);
    let request = request_id.request(core, params, options);
    let Some(reply) = core.engine.call_now(&request, &|| sent) else {
        request_id.acknowledge(core, params);
        return None;
    };
    // No time has passed since `sent`.
    let outcome =
        reply.and_then(|reply| interpret_reply(core, params, request_id, sent, sent, &reply));
    if !matches!(
        outcome,
        Ok(AcquireOutcome::Granted(..) | AcquireOutcome::Busy { .. })
    ) {
        core.cleanup.push(undo(core, params, request_id));
    }
    Some(outcome)
}

pub(super) fn request(
    core: &Core,
    params: &AcquireParams,
    owner: OwnerId,
    options: AttemptOptions,
) -> Request {
    params.subject.request(Action::Acquire {
        owner,
        entry: Entry::Fresh,
        lease: params.terms.lease,
        min_token: core.tokens.seen(&params.subject),
        waiter_ttl: options.waiter_ttl,
        other_side: params
            .other_side
            .or_else(|| Some(core.other_side(params)?.owner)),
        bypass_writers: options.bypass_writers,
        permits: params.permits,
    })
}

/// Identifies one acquire request: its owner, and an idempotency key if the request must not be carried out twice.
#[derive(Clone, Copy, Debug)]
struct RequestId {
    owner: OwnerId,
    key: Option<IdempotencyKey>,
}

impl RequestId {
    /// Where a grant has no owner, each request gets a new key: the owner only identifies the place in the queue.
    fn new(core: &Core, params: &AcquireParams, owner: OwnerId) -> Self {
        let nobodys = params.subject.kind.is_ownerless();
        let key = nobodys.then(|| core.new_idempotency_key(&params.subject));
        Self { owner, key }
    }

    /// Returns the id to which the lock is granted.
    fn id(self) -> OwnerId {
        self.key.map_or(self.owner, |key| key.id)
    }

    /// Notes that the outcome of the request is no longer needed.
    fn acknowledge(self, core: &Core, params: &AcquireParams) {
        if let Some(key) = self.key {
            core.acknowledge_key(&params.subject, key.id);
        }
    }

    fn request(self, core: &Core, params: &AcquireParams, options: AttemptOptions) -> Request {
        let Some(key) = self.key else {
            return request(core, params, self.owner, options);
        };
        let change = CounterOp::Take {
            queue_owner: self.owner,
            count: params.permits.count,
            waiter_ttl: options.waiter_ttl,
        };
        params.subject.request(Action::CounterOp { key, change })
    }
}

fn undo(core: &Arc<Core>, params: &AcquireParams, request_id: RequestId) -> CleanupJob {
    let AcquireParams { subject, terms, .. } = params;
    let queued_owner = request_id.key.map(|_| request_id.owner);
    let queued_owner = queued_owner.filter(|_| params.registers_waiters());
    CleanupJob::undo(core, subject, request_id.id(), terms.lease).also_leaving(queued_owner)
}

fn interpret_reply(
    core: &Arc<Core>,
    params: &AcquireParams,
    request_id: RequestId,
    sent: Moment,
    now: Moment,
    reply: &Reply,
) -> Result<AcquireOutcome, StoreError> {
    match reply {
        // The user would rely on a token that the store never gave.
        Reply::Granted { token: None } if params.subject.kind.is_fenced() => {
            Err(unexpected_reply(reply))
        }
        Reply::Granted { token } => {
            core.tokens.note(&params.subject, *token);
            let hold_ref = Hold::granted(core, params, request_id.id(), *token, sent, now);
            Ok(hold_ref.map_or(AcquireOutcome::LeaseExpired, |hold_ref| {
                AcquireOutcome::Granted(hold_ref, now)
            }))
        }
        Reply::Busy { ttl } => {
            request_id.acknowledge(core, params);
            Ok(AcquireOutcome::Busy {
                owner: request_id.owner,
                ttl: *ttl,
            })
        }
        other => Err(unexpected_reply(other)),
    }
}
