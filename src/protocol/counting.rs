//! The counting semaphore, Redisson's `RSemaphore`: it does not know which client has permits, and
//! no permit returns by itself.
//!
//! A waiter for several permits is queued, as for the [semaphore with leases](super::semaphore),
//! and until it has had its turn no client of this library goes past it.

use std::time::Duration;

use super::dedup::{DedupTable, IdempotencyKey, RecordedOutcome};
use super::number::{CounterOp, MAX_COUNTER, counted, inspected};
use super::state::{ApplyContext, Outcome};
use super::store_queue::StoreQueue;
use super::{Action, Moment, OwnerId, Reply, Request};

/// Decides one request to the semaphore.
pub fn apply(
    available: &mut Option<i64>,
    dedup: &mut DedupTable,
    queue: &mut dyn StoreQueue,
    request: &Request,
    ctx: &ApplyContext,
) -> Outcome {
    let mut semaphore = CountingApply {
        available,
        dedup,
        queue,
        now: ctx.now,
        notify: false,
    };
    let mut reply = semaphore.decide(&request.action);
    // While no permit is available, no waiter is notified.
    let notify = semaphore.notify && semaphore.available.is_some_and(|available| available > 0);
    if let Reply::Released { subscribers } = &mut reply
        && notify
    {
        *subscribers = ctx.subscribers;
    }
    Outcome {
        reply: Ok(reply),
        notify: notify.then(|| request.subject.channel()),
    }
}

struct CountingApply<'a> {
    available: &'a mut Option<i64>,
    dedup: &'a mut DedupTable,
    queue: &'a mut dyn StoreQueue,
    now: Moment,
    /// Whether a retry may succeed now.
    notify: bool,
}

impl CountingApply<'_> {
    fn decide(&mut self, action: &Action) -> Reply {
        match action {
            Action::CounterOp { key, change } => match (self.dedup.recorded(key.id), *change) {
                (Some(effect), _) => effect.into(),
                (
                    None,
                    CounterOp::Take {
                        queue_owner,
                        count,
                        waiter_ttl,
                    },
                ) => self.take(*key, queue_owner, count, waiter_ttl),
                (None, change) => self.alter(*key, change),
            },
            Action::SemaphoreOp(_) => counted(*self.available),
            Action::Inspect => inspected(*self.available),
            // No holder is known.
            Action::ForceRelease => Reply::Forced(false),
            Action::Release { owner, left: 0 } => self.give_back(*owner).unwrap_or_else(|| {
                self.notify |= self.queue.remove(owner);
                Reply::Gone
            }),
            Action::Undo { owner, .. } => self.give_back(*owner).unwrap_or_else(|| {
                self.dedup.undo(*owner, self.now);
                Reply::Tombstoned
            }),
            Action::Acquire { .. }
            | Action::Transfer { .. }
            | Action::Release { .. }
            | Action::Renew { .. } => Reply::Gone,
        }
    }

    fn take(
        &mut self,
        key: IdempotencyKey,
        queue_owner: OwnerId,
        count: u32,
        waiter_ttl: Option<Duration>,
    ) -> Reply {
        let first = self.queue.first_live(self.now);
        if first.is_none_or(|first| first == queue_owner)
            && let Some(available) = self.available
            && *available >= i64::from(count)
        {
            *available -= i64::from(count);
            self.dedup
                .record(key, RecordedOutcome::Took(count), self.now);
            // The next waiter may find enough permits for itself.
            self.notify |= self.queue.remove(&queue_owner);
            return Reply::Granted { token: None };
        }
        if let Some(waiter_ttl) = waiter_ttl {
            self.queue.enqueue(queue_owner, self.now + waiter_ttl);
        }
        Reply::Busy { ttl: None }
    }

    fn alter(&mut self, key: IdempotencyKey, change: CounterOp) -> Reply {
        let before = *self.available;
        let now = before.unwrap_or(0);
        let after = match change {
            CounterOp::Add(more) => now
                .checked_add(more)
                .filter(|sum| (-MAX_COUNTER..=MAX_COUNTER).contains(sum))
                .map_or(before, Some),
            // A negative number is not drained: that would create permits.
            CounterOp::Drain => before.map(|available| available.min(0)),
            CounterOp::Delete => None,
            CounterOp::Set(to) => Some(to),
            CounterOp::SetOnce(to) => before.or(Some(to)),
            // These operations are a latch's, or are handled in `take`.
            CounterOp::CountDown | CounterOp::Take { .. } => before,
        };
        *self.available = after;
        self.notify |= after.is_some_and(|after| after > now);
        let effect = RecordedOutcome::Altered(before, after);
        self.dedup.record(key, effect, self.now);
        effect.into()
    }

    /// Puts back the permits that a request took, if it took any and its reply is not known to have
    /// arrived.
    fn give_back(&mut self, id: OwnerId) -> Option<Reply> {
        let Some(RecordedOutcome::Took(count)) = self.dedup.recorded(id) else {
            return None;
        };
        self.dedup.undo(id, self.now);
        // A semaphore that was deleted is not created anew for that.
        if let Some(available) = self.available {
            *available = (*available + i64::from(count)).min(MAX_COUNTER);
            self.notify = true;
        }
        Some(Reply::Released { subscribers: 0 })
    }
}
