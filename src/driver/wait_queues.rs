//! The queue of local waiters for each lock.
//!
//! Only the head of a queue sends requests to the store, and only while this client does not hold the lock: a waiter
//! behind a hold of this client waits for its end, of which it is always notified. A released lock may be handed off to
//! the next waiter without a request to the store, a bounded number of times; then other clients get their turn.
//!
//! The waiters for a semaphore are queued by the number of permits: a larger request may be unavailable where a smaller
//! one is available, and only the store knows which waiter comes first.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::HashMap;

use super::cleanup_job::CleanupJob;
use super::hold::Hold;
use super::wait_queue::{QueueHead, StoreStatus, WaitQueue};
use super::waiter::{Waiter, WakeReason};
use crate::protocol::acquire::yield_to_others;
use crate::protocol::lease::LeaseState;
use crate::protocol::{FencingToken, Moment, OwnerId, PermitRequest, Subject};

/// How long one client may hold a lock without a break. Waiters that poll have no subscription, so the store cannot
/// count them: a client that has held a lock for this long makes a break for them.
pub(super) const MAX_TIME_HELD: Duration = Duration::from_millis(100);

/// The origin of a request that the store granted.
#[derive(Debug)]
pub(super) enum GrantSource {
    /// The head of the queue for these permits, with its waiter if it has one.
    Head(PermitRequest, Option<Arc<Waiter>>),
    Bypass,
}

/// The outcome of an attempt to hand off a released hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HandOffOutcome {
    /// Another waiter of this client has the lock now.
    HandedOff,
    /// The lock has to be released in the store. `has_waiters` says whether this client may have a waiter for it.
    NotHandedOff { has_waiters: bool },
}

/// All wait queues of a client.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues {
    map: Mutex<QueueMap>,
}

#[derive(Debug, Default)]
pub(super) struct QueueMap {
    queues: HashMap<Subject, WaitQueue>,
    /// Queues for other numbers of permits than one. Kept apart, so that locks do not pay for the larger key.
    multi_permit_queues: HashMap<(Subject, PermitRequest), WaitQueue>,
    /// Queues that are kept only because this client yields the lock to others, by the end of that time.
    yielding: VecDeque<(Moment, Subject)>,
    pub(super) closed: bool,
}

impl WaitQueues {
    /// Notes that the store has granted the lock to this client: from now on the waiters wait for that hold, if it is
    /// exclusive. A head that sent the request leaves the queue.
    pub(super) fn granted(&self, hold: &Arc<Hold>, source: GrantSource, now: Moment) {
        let mut map = self.lock();
        // A hold that is already lost has already been removed: it would stay in the queue forever.
        let holds = hold.subject.kind.is_exclusive() && hold.state().lease.end().is_none();
        let wanted = match &source {
            GrantSource::Head(wanted, _) => *wanted,
            GrantSource::Bypass => PermitRequest::ONE,
        };
        let queue = match holds {
            true => map.get_or_create(&hold.subject, wanted),
            false => match map.find_mut(&hold.subject, wanted) {
                Some(queue) => queue,
                None => return,
            },
        };
        if holds {
            queue.set_holder(hold.clone());
            queue.handoffs = 0;
            queue.granted_at = Some(now);
            queue.held_since.get_or_insert(now);
        }
        let undelivered = match source {
            GrantSource::Bypass => None,
            GrantSource::Head(_, waiter) => {
                if queue.is_head(waiter.as_ref()) {
                    queue.head = QueueHead::Vacant;
                }
                // A lock in it that the waiter never saw is released when this is dropped.
                waiter.map(|waiter| waiter.leave())
            }
        };
        let old_subscription = queue.advance(now);
        if queue.is_idle(now) {
            map.forget(&hold.subject, wanted);
        }
        drop(map);
        drop(old_subscription);
        drop(undelivered);
    }

    /// Hands off a hold that is being released to the next waiter, in memory.
    pub(super) fn hand_off(&self, hold: &Arc<Hold>, now: Moment) -> HandOffOutcome {
        let not_handed_off = HandOffOutcome::NotHandedOff { has_waiters: true };
        if !hold.subject.kind.supports_local_handoff() {
            return not_handed_off;
        }
        let core = &hold.core;
        let mut map = self.lock();
        let Some(queue) = map.queue_held_by(hold) else {
            return not_handed_off;
        };
        if queue.has_no_waiters() {
            return HandOffOutcome::NotHandedOff { has_waiters: false };
        }
        let recent = queue
            .granted_at
            .is_some_and(|at| now.since(at) < core.settings.handoff_window);
        let exhausted = !recent || queue.handoffs >= core.settings.handoff_limit;
        if exhausted && !planted!(HandedForEver) {
            return not_handed_off;
        }
        let Some(waiter) = queue.next_with_terms(&hold.terms) else {
            return not_handed_off;
        };
        let mut state = hold.state();
        // If the owner has re-entered the lock, a request that corrects the count, or a tombstone, may still be in flight.
        if state.acquire_seq > 1 || !state.lease.may_hand_off(now) {
            return not_handed_off;
        }
        let lease = state.lease.hand_off(waiter.terms, now);
        hold.unschedule(&mut state);
        drop(state);
        let hold_ref = hold.successor(hold.owner, hold.token, waiter.local_owner, lease);
        queue.handoffs += 1;
        let undelivered = queue.deliver(&waiter, hold_ref);
        if planted!(HandedTwice)
            && let Some(second) = queue.next_with_terms(&hold.terms)
        {
            let lease = hold.state().lease.hand_off(second.terms, now);
            let hold_ref = hold.successor(hold.owner, hold.token, second.local_owner, lease);
            drop(queue.deliver(&second, hold_ref));
        }
        let old_subscription = queue.advance(now);
        drop(map);
        drop(old_subscription);
        // The waiter left at this very moment: dropping the `HoldRef` tries the next one.
        drop(undelivered);
        HandOffOutcome::HandedOff
    }

    /// Returns whether the release should ask the store to transfer the lock to the next waiter atomically, and if so,
    /// how many of the lock's subscriptions are this client's own.
    pub(super) fn may_transfer(&self, hold: &Arc<Hold>, now: Moment) -> Option<u32> {
        let mut map = self.lock();
        let queue = map.queue_held_by(hold)?;
        let fits = hold.subject.kind.supports_transfer()
            && hold.terms.keep_alive
            && hold.terms.max_hold.is_none();
        if !fits || queue.has_held_too_long(now) {
            return None;
        }
        queue.next_with_terms(&hold.terms)?;
        Some(queue.own_subscribers())
    }

    /// Notes that the store has transferred the lock from `hold` to `owner`: the next waiter receives it.
    pub(super) fn on_transferred(
        &self,
        hold: &Arc<Hold>,
        owner: OwnerId,
        token: Option<FencingToken>,
        sent: Moment,
    ) {
        let core = &hold.core;
        let now = hold.now();
        let Some(lease) = LeaseState::granted(hold.terms, sent, now) else {
            let undo = CleanupJob::undo(core, &hold.subject, owner, hold.terms.lease);
            core.cleanup.push(undo);
            return self.on_released(hold, None, now);
        };
        let mut map = self.lock();
        let queue = map.queues.entry(hold.subject.clone()).or_default();
        let waiter = queue.next_with_terms(&hold.terms);
        let local_owner = waiter.as_ref().and_then(|waiter| waiter.local_owner);
        let hold_ref = hold.successor(owner, token, local_owner, lease);
        queue.handoffs = 0;
        queue.granted_at = Some(now);
        let undelivered = match waiter {
            Some(waiter) => queue.deliver(&waiter, hold_ref),
            None => {
                queue.set_holder(hold_ref.hold().clone());
                Some(WakeReason::HandedOff(hold_ref))
            }
        };
        let old_subscription = queue.advance(now);
        drop(map);
        drop(old_subscription);
        if planted!(PassedToNobody) {
            return std::mem::forget(undelivered);
        }
        // No waiter takes it: dropping the `HoldRef` releases the lock.
        drop(undelivered);
    }

    /// Notes that a hold of this client has ended and the store knows it, or does not reply: the next waiter sends its
    /// request. Subscribers of other clients go first.
    pub(super) fn on_released(&self, hold: &Arc<Hold>, subscribers: Option<u32>, now: Moment) {
        let mut map = self.lock();
        map.remove_expired(now);
        let QueueMap {
            queues, yielding, ..
        } = &mut *map;
        let Entry::Occupied(mut entry) = queues.entry(hold.subject.clone()) else {
            return;
        };
        let queue = entry.get_mut();
        if !queue.is_held_by(hold) {
            return;
        }
        queue.holder = None;
        // The lock is free as far as this client knows; the next request will show.
        queue.status = StoreStatus::Unknown;
        let has_other_subscribers = subscribers.is_some_and(|all| all > queue.own_subscribers());
        // Without waiters in this client, pollers find the lock free often enough.
        let pollers = queue.has_held_too_long(now) && !queue.has_no_waiters();
        if has_other_subscribers || pollers {
            queue.held_since = None;
            let until = now + yield_to_others(hold.core.fresh_seed(), pollers);
            queue.yield_until = Some(until);
            yielding.push_back((until, hold.subject.clone()));
        }
        if let QueueHead::Waiting(waiter) = &queue.head {
            // The head sleeps until a notification arrives; this is one.
            let _ = waiter.wake(WakeReason::SendRequest {
                not_before: queue.yield_until,
            });
        }
        if planted!(NextNotCalled) {
            return;
        }
        let old_subscription = queue.advance(now);
        if queue.is_idle(now) {
            entry.remove();
        }
        drop(map);
        drop(old_subscription);
    }

    /// Returns the number of waiters in all queues, for debug output.
    pub(super) fn waiter_count(&self) -> usize {
        let map = self.lock();
        map.all()
            .map(|queue| queue.waiters.len().saturating_sub(queue.stale_entries))
            .sum()
    }

    /// Returns some of the names that are held or waited for here, for debug output.
    pub(super) fn some_names(&self, most: usize) -> Vec<Arc<str>> {
        let map = self.lock();
        let multi_permit_queues = map.multi_permit_queues.keys().map(|(subject, _)| subject);
        let subjects = map.queues.keys().chain(multi_permit_queues).take(most);
        subjects.map(|subject| subject.name.clone()).collect()
    }

    /// Returns this client's hold on an exclusive lock, if it has one.
    pub(super) fn holder(&self, subject: &Subject) -> Option<Arc<Hold>> {
        self.lock().queues.get(subject)?.holder.clone()
    }

    /// Wakes all waiters, because the client is closed.
    pub(super) fn close(&self) {
        let mut map = self.lock();
        map.closed = true;
        let mut rejected = Vec::new();
        for queue in map.all() {
            if let QueueHead::Waiting(waiter) = &queue.head {
                rejected.push(waiter.wake(WakeReason::Closed));
            }
            rejected.extend(
                queue
                    .waiters
                    .iter()
                    .map(|waiter| waiter.wake(WakeReason::Closed)),
            );
        }
    }

    pub(super) fn leave(
        &self,
        subject: &Subject,
        wanted: PermitRequest,
        waiter: Option<Arc<Waiter>>,
        now: Moment,
    ) {
        let mut map = self.lock();
        let Some(queue) = map.find_mut(subject, wanted) else {
            return;
        };
        let was_head = queue.is_head(waiter.as_ref());
        let was_queued = waiter.as_ref().is_some_and(|waiter| waiter.is_queued());
        // A lock in it that the waiter never saw is released when this is dropped.
        let undelivered = waiter.map(|waiter| waiter.leave());
        if was_head && planted!(CancelledHeadKeepsTurn) {
            // The head's place stays taken.
        } else if was_head {
            queue.head = QueueHead::Vacant;
        } else if was_queued {
            queue.stale_entries += 1;
            if queue.stale_entries * 2 > queue.waiters.len() {
                queue.waiters.retain(|waiter| !waiter.has_left());
                queue.stale_entries = 0;
            }
        }
        let old_subscription = queue.advance(now);
        if queue.is_idle(now) {
            map.forget(subject, wanted);
        }
        drop(map);
        drop(old_subscription);
        drop(undelivered);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueMap> {
        // No user code runs under this lock, so the data of a poisoned one is consistent.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueMap {
    pub(super) fn find(&self, subject: &Subject, wanted: PermitRequest) -> Option<&WaitQueue> {
        match wanted {
            PermitRequest::ONE => self.queues.get(subject),
            wanted => self.multi_permit_queues.get(&(subject.clone(), wanted)),
        }
    }

    pub(super) fn find_mut(
        &mut self,
        subject: &Subject,
        wanted: PermitRequest,
    ) -> Option<&mut WaitQueue> {
        match wanted {
            PermitRequest::ONE => self.queues.get_mut(subject),
            wanted => self.multi_permit_queues.get_mut(&(subject.clone(), wanted)),
        }
    }

    /// Returns the queue, created if there is none.
    pub(super) fn get_or_create(
        &mut self,
        subject: &Subject,
        wanted: PermitRequest,
    ) -> &mut WaitQueue {
        match wanted {
            PermitRequest::ONE => self.queues.entry(subject.clone()).or_default(),
            wanted => self
                .multi_permit_queues
                .entry((subject.clone(), wanted))
                .or_default(),
        }
    }

    fn forget(&mut self, subject: &Subject, wanted: PermitRequest) {
        match wanted {
            PermitRequest::ONE => self.queues.remove(subject),
            wanted => self.multi_permit_queues.remove(&(subject.clone(), wanted)),
        };
    }

    fn all(&self) -> impl Iterator<Item = &WaitQueue> {
        self.queues
            .values()
            .chain(self.multi_permit_queues.values())
    }

    /// Returns the queue of which this very hold is the holder.
    fn queue_held_by(&mut self, hold: &Arc<Hold>) -> Option<&mut WaitQueue> {
        let queue = self.queues.get_mut(&hold.subject)?;
        queue.is_held_by(hold).then_some(queue)
    }

    /// Removes queues that were kept only until this client stops yielding.
    pub(super) fn remove_expired(&mut self, now: Moment) {
        while let Some((until, _)) = self.yielding.front()
            && *until <= now
        {
            if let Some((_, subject)) = self.yielding.pop_front()
                && self
                    .queues
                    .get(&subject)
                    .is_some_and(|queue| queue.is_idle(now))
            {
                self.queues.remove(&subject);
            }
        }
    }
}
