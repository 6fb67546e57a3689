//! The latch, Redisson's `RCountDownLatch`: a count that goes down, with waiters for its end.

use super::dedup::{DedupTable, IdempotencyKey, RecordedOutcome};
use super::number::{CounterOp, counted, inspected};
use super::state::{ApplyContext, Outcome};
use super::{Action, Reply, Request};

/// Decides one request to the latch.
pub fn apply(
    left: &mut Option<i64>,
    dedup: &mut DedupTable,
    request: &Request,
    ctx: &ApplyContext,
) -> Outcome {
    let (reply, notify) = match &request.action {
        Action::CounterOp { key, change } => match dedup.recorded(key.id) {
            Some(effect) => (effect.into(), false),
            None => alter(left, dedup, *key, *change, ctx),
        },
        Action::Undo { owner, .. } => {
            dedup.undo(*owner, ctx.now);
            (Reply::Tombstoned, false)
        }
        Action::SemaphoreOp(_) => (counted(*left), false),
        Action::Inspect => (inspected(*left), false),
        // A latch has no holder.
        Action::ForceRelease => (Reply::Forced(false), false),
        Action::Acquire { .. }
        | Action::Transfer { .. }
        | Action::Release { .. }
        | Action::Renew { .. } => (Reply::Gone, false),
    };
    Outcome {
        reply: Ok(reply),
        notify: notify.then(|| request.subject.channel()),
    }
}

fn alter(
    left: &mut Option<i64>,
    dedup: &mut DedupTable,
    key: IdempotencyKey,
    change: CounterOp,
    ctx: &ApplyContext,
) -> (Reply, bool) {
    let before = *left;
    let after = match change {
        CounterOp::CountDown => before.map(|left| left - 1).filter(|left| *left > 0),
        CounterOp::Delete => None,
        CounterOp::SetOnce(count) => before.or(Some(count)),
        // These operations are a semaphore's.
        CounterOp::Add(_) | CounterOp::Drain | CounterOp::Set(_) | CounterOp::Take { .. } => before,
    };
    *left = after;
    let effect = RecordedOutcome::Altered(before, after);
    dedup.record(key, effect, ctx.now);
    // Waiters are notified when the latch is set or is gone; a count below one had no waiters left.
    let counted_below = change == CounterOp::CountDown && before.is_some_and(|left| left < 1);
    let notify = before.is_some() != after.is_some() && !counted_below;
    (effect.into(), notify)
}
