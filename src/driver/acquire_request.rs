//! One question to the store: may we have the lock?

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

/// What the store made of one request.
pub(super) enum AcquireOutcome {
    /// Somebody else has it, for this long. Nothing of this owner is left at the store.
    Busy {
        owner: OwnerId,
        ttl: Option<Duration>,
    },
    /// It is ours, as of a moment ago.
    Granted(HoldRef, Moment),
    /// Granted, but the lease ran out before we heard of it.
    LeaseExpired,
}

/// How a waiter asks: what the store is to know of it beside what it wants.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttemptOptions {
    /// How long it is believed to wait, where the store knows who does.
    pub(super) waits: Option<Duration>,
    /// Past writers that wait, if it is a reader.
    pub(super) bypass_writers: bool,
}

/// One request from zero. Dropping it, or losing its reply, has it undone, and its owner is not to be used
/// again; a busy lock's answer brings the owner back. It is `sent` now or has been a moment ago: the store's
/// clock starts no earlier.
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
            // Where the store knows who waits it may know of this one since before.
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

/// The same where the store answers on the spot.
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
    // No time has passed.
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
        seen: core.tokens.seen(&params.subject),
        waits: options.waits,
        upgrade_from: params
            .upgrade_from
            .or_else(|| Some(core.other_side(params)?.owner)),
        bypass_writers: options.bypass_writers,
        permits: params.permits,
    })
}

/// Who asks, and by which request if it must not be carried out twice.
#[derive(Clone, Copy, Debug)]
struct RequestId {
    owner: OwnerId,
    key: Option<IdempotencyKey>,
}

impl RequestId {
    /// Where a grant is nobody's each question is a new one: the owner only stands in line.
    fn new(core: &Core, params: &AcquireParams, owner: OwnerId) -> Self {
        let nobodys = params.subject.kind.is_ownerless();
        let key = nobodys.then(|| core.new_idempotency_key(&params.subject));
        Self { owner, key }
    }

    /// Who is granted what it asks for.
    fn id(self) -> OwnerId {
        self.key.map_or(self.owner, |key| key.id)
    }

    /// Its outcome is of no concern any more.
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
            place: self.owner,
            count: params.permits.count,
            waits: options.waits,
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
        // Its user would go by a token that nobody gave.
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
