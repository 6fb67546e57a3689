//! The wait queue of one lock: its holder, head and waiters in this client.

use std::collections::VecDeque;
use std::sync::Arc;

use super::hold::Hold;
use super::hold_ref::HoldRef;
use super::wait_queues::MAX_TIME_HELD;
use super::waiter::{Waiter, WakeReason};
use crate::engine::Subscription;
use crate::protocol::Moment;
use crate::protocol::lease::LeaseTerms;

/// The wait queue of one lock.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) holder: Option<Arc<Hold>>,
    pub(super) head: QueueHead,
    pub(super) waiters: VecDeque<Arc<Waiter>>,
    /// How many entries of `waiters` belong to waiters that have left the queue.
    pub(super) stale_entries: usize,
    /// The last status of the lock that this client has learned.
    pub(super) status: StoreStatus,
    pub(super) subscription: Option<Arc<Subscription>>,
    /// How often the lock was handed off in memory since the store last granted it, and when that was.
    pub(super) handoffs: u32,
    pub(super) granted_at: Option<Moment>,
    /// Since when this client has held the lock, one holder after another and without a break for other clients.
    pub(super) held_since: Option<Moment>,
    pub(super) yield_until: Option<Moment>,
}

/// The last known status of a lock, reported by the store or by this client's own hold.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum StoreStatus {
    /// Nothing is known since the lock was released.
    #[default]
    Unknown,
    /// The lock is held.
    Busy,
    /// The last request brought no reply about the lock.
    Failed,
}

#[derive(Debug, Default)]
pub(super) enum QueueHead {
    #[default]
    Vacant,
    /// The head sends its first request and has no [`Waiter`] yet.
    FirstRequest,
    Waiting(Arc<Waiter>),
}

impl WaitQueue {
    /// Sets the hold that all waiters wait for now. Waiters of the same local owner need not wait.
    pub(super) fn set_holder(&mut self, hold: Arc<Hold>) {
        if hold.local_owner.is_some() {
            let head = match &self.head {
                QueueHead::Waiting(waiter) => Some(waiter),
                QueueHead::Vacant | QueueHead::FirstRequest => None,
            };
            let all = self.waiters.iter().chain(head);
            for waiter in all.filter(|waiter| waiter.local_owner == hold.local_owner) {
                let _ = waiter.wake(WakeReason::Reenter);
            }
        }
        self.status = StoreStatus::Busy;
        self.holder = Some(hold);
    }

    /// Transfers the lock to this waiter; returns it if the waiter has left.
    pub(super) fn deliver(
        &mut self,
        waiter: &Arc<Waiter>,
        hold_ref: HoldRef,
    ) -> Option<WakeReason> {
        match &self.head {
            QueueHead::Waiting(head) if Arc::ptr_eq(head, waiter) => self.head = QueueHead::Vacant,
            QueueHead::Vacant | QueueHead::FirstRequest | QueueHead::Waiting(_) => {
                self.waiters.pop_front();
                waiter.set_queued(false);
            }
        }
        self.set_holder(hold_ref.hold().clone());
        waiter.wake(WakeReason::HandedOff(hold_ref))
    }

    /// Makes the next waiter the head, if there is none and this client does not hold the lock. Returns the
    /// subscription when no waiter is left to use it; it has to be dropped without the lock of the wait queues.
    pub(super) fn advance(&mut self, now: Moment) -> Option<Arc<Subscription>> {
        let vacant = matches!(self.head, QueueHead::Vacant);
        if vacant && self.holder.is_none() {
            let not_before = self.yield_until.filter(|until| *until > now);
            while let Some(waiter) = self.waiters.pop_front() {
                waiter.set_queued(false);
                if waiter
                    .wake(WakeReason::SendRequest { not_before })
                    .is_none()
                {
                    self.head = QueueHead::Waiting(waiter);
                    break;
                }
                self.stale_entries = self.stale_entries.saturating_sub(1);
            }
        }
        if !matches!(self.head, QueueHead::Vacant) || self.front().is_some() {
            return None;
        }
        self.subscription.take()
    }

    /// Returns whether there is nothing to remember about the lock.
    pub(super) fn is_idle(&self, now: Moment) -> bool {
        self.holder.is_none()
            && self.has_no_waiters()
            && self.yield_until.is_none_or(|until| until <= now)
    }

    pub(super) fn is_held_by(&self, hold: &Arc<Hold>) -> bool {
        let holder = self.holder.as_ref();
        holder.is_some_and(|holder| Arc::ptr_eq(holder, hold))
    }

    /// Returns whether this waiter is the head, which sends the requests.
    pub(super) fn is_head(&self, waiter: Option<&Arc<Waiter>>) -> bool {
        match (&self.head, waiter) {
            (QueueHead::FirstRequest, None) => true,
            (QueueHead::Waiting(head), Some(waiter)) => Arc::ptr_eq(head, waiter),
            (QueueHead::Vacant | QueueHead::FirstRequest | QueueHead::Waiting(_), _) => false,
        }
    }

    /// Returns whether it is time to make a break for waiters that receive no notifications.
    pub(super) fn has_held_too_long(&self, now: Moment) -> bool {
        let since = self.held_since;
        since.is_some_and(|since| now.since(since) >= MAX_TIME_HELD)
    }

    /// Returns whether this client has neither a head nor a waiter.
    pub(super) fn has_no_waiters(&self) -> bool {
        matches!(self.head, QueueHead::Vacant) && self.waiters.is_empty()
    }

    /// Returns the next waiter, if it wants the lock on these terms.
    pub(super) fn next_with_terms(&mut self, terms: &LeaseTerms) -> Option<Arc<Waiter>> {
        let next = match &self.head {
            QueueHead::Waiting(waiter) => Some(waiter.clone()),
            QueueHead::Vacant => self.front().cloned(),
            // The head has no waiter to receive the lock, and the queued waiters came after it: the store decides.
            QueueHead::FirstRequest => None,
        };
        next.filter(|waiter| waiter.terms == *terms)
    }

    /// Returns the first waiter in the queue that has not left.
    pub(super) fn front(&mut self) -> Option<&Arc<Waiter>> {
        while self.waiters.front().is_some_and(|waiter| waiter.has_left()) {
            self.waiters.pop_front();
            self.stale_entries = self.stale_entries.saturating_sub(1);
        }
        self.waiters.front()
    }

    pub(super) fn own_subscribers(&self) -> u32 {
        u32::from(
            self.subscription
                .as_ref()
                .is_some_and(|subscription| subscription.is_live()),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_waiter_with_a_request_in_flight_is_not_overtaken_by_later_waiters() {
        let terms = LeaseTerms {
            lease: Duration::from_secs(30),
            keep_alive: true,
            max_hold: None,
            redisson_ttl_cap: None,
        };
        let mut queue = WaitQueue::default();
        queue
            .waiters
            .push_back(Arc::new(Waiter::new(terms, None, false)));
        assert!(queue.next_with_terms(&terms).is_some(), "it is the first");
        queue.head = QueueHead::FirstRequest;
        assert!(queue.next_with_terms(&terms).is_none(), "it came later");
    }
}
