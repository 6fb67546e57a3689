//! One lock, as this client sees it: who of us holds it, who asks, who waits.

use std::collections::VecDeque;
use std::sync::Arc;

use super::hold::Hold;
use super::hold_ref::HoldRef;
use super::wait_queues::MAX_STREAK;
use super::waiter::{Waiter, WakeReason};
use crate::engine::Subscription;
use crate::protocol::Moment;
use crate::protocol::lease::LeaseTerms;

/// One lock.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) holder: Option<Arc<Hold>>,
    pub(super) head: QueueHead,
    pub(super) waiters: VecDeque<Arc<Waiter>>,
    /// How many in the line have left it.
    pub(super) departed: usize,
    /// What anyone here has last heard of it.
    pub(super) status: StoreStatus,
    pub(super) listener: Option<Arc<Subscription>>,
    /// Passed on in memory since the store last granted it, and when that was.
    pub(super) transfers: u32,
    pub(super) granted_at: Option<Moment>,
    /// Since when this client has had it, one after another and without a break for others.
    pub(super) streak_since: Option<Moment>,
    pub(super) yield_until: Option<Moment>,
}

/// What the store last said of a lock, or we ourselves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum StoreStatus {
    /// Nothing since it was given back.
    #[default]
    Unknown,
    /// Somebody has it.
    Busy,
    /// The store did not say.
    Failed,
}

#[derive(Debug, Default)]
pub(super) enum QueueHead {
    #[default]
    Vacant,
    /// Asks for the first time and has no seat yet.
    FirstRequest,
    Waiting(Arc<Waiter>),
}

impl WaitQueue {
    /// The hold everyone waits for now. Waiters of the same owner need not.
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

    /// Gives the lock to whoever sits there; gives it back if nobody does any more.
    pub(super) fn transfer_to(
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
        waiter.wake(WakeReason::Transferred(hold_ref))
    }

    /// Lets the next in line be the head, if there is none and nobody here holds the lock. Returns the
    /// listener when nobody is left to listen; it is to be dropped without the line's lock.
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
                self.departed = self.departed.saturating_sub(1);
            }
        }
        if !matches!(self.head, QueueHead::Vacant) || self.front().is_some() {
            return None;
        }
        self.listener.take()
    }

    /// Whether there is nothing to remember of it.
    pub(super) fn is_idle(&self, now: Moment) -> bool {
        self.holder.is_none()
            && self.has_no_waiters()
            && self.yield_until.is_none_or(|until| until <= now)
    }

    pub(super) fn is_held_by(&self, hold: &Arc<Hold>) -> bool {
        let holder = self.holder.as_ref();
        holder.is_some_and(|holder| Arc::ptr_eq(holder, hold))
    }

    /// Whether it is this waiter who asks the store.
    pub(super) fn is_head(&self, waiter: Option<&Arc<Waiter>>) -> bool {
        match (&self.head, waiter) {
            (QueueHead::FirstRequest, None) => true,
            (QueueHead::Waiting(head), Some(waiter)) => Arc::ptr_eq(head, waiter),
            (QueueHead::Vacant | QueueHead::FirstRequest | QueueHead::Waiting(_), _) => false,
        }
    }

    /// Whether it is time to let those have a chance who hear of nothing.
    pub(super) fn has_held_too_long(&self, now: Moment) -> bool {
        let since = self.streak_since;
        since.is_some_and(|since| now.since(since) >= MAX_STREAK)
    }

    /// Whether nobody here asks for it or waits for it.
    pub(super) fn has_no_waiters(&self) -> bool {
        matches!(self.head, QueueHead::Vacant) && self.waiters.is_empty()
    }

    /// The next in line, if it wants the lock on these terms.
    pub(super) fn next_with_terms(&mut self, terms: &LeaseTerms) -> Option<Arc<Waiter>> {
        let next = match &self.head {
            QueueHead::Waiting(waiter) => Some(waiter.clone()),
            QueueHead::Vacant => self.front().cloned(),
            // The head has no seat to get the lock in, and those in line came after it: the store decides.
            QueueHead::FirstRequest => None,
        };
        next.filter(|waiter| waiter.terms == *terms)
    }

    /// The first in the line who is still there.
    pub(super) fn front(&mut self) -> Option<&Arc<Waiter>> {
        while self.waiters.front().is_some_and(|waiter| waiter.has_left()) {
            self.waiters.pop_front();
            self.departed = self.departed.saturating_sub(1);
        }
        self.waiters.front()
    }

    pub(super) fn own_listeners(&self) -> u32 {
        u32::from(
            self.listener
                .as_ref()
                .is_some_and(|listener| listener.is_live()),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_waiter_that_asks_the_store_is_not_overtaken_by_those_behind_it() {
        let terms = LeaseTerms {
            lease: Duration::from_secs(30),
            keep_alive: true,
            max_hold: None,
            peer_ttl_cap: None,
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
