//! One waiter of a local queue, until it is woken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::hold_ref::HoldRef;
use super::owners::LocalOwner;
use crate::protocol::Moment;
use crate::protocol::lease::LeaseTerms;

/// One waiter.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) terms: LeaseTerms,
    pub(super) local_owner: Option<LocalOwner>,
    /// The waiter polls instead of subscribing.
    pub(super) polls: bool,
    state: Mutex<WaiterState>,
    /// The waiter is in the queue, and neither its head nor the holder. Changed under the lock of the wait queues.
    queued: AtomicBool,
}

/// Why a waiter is woken.
#[derive(Debug)]
pub(super) enum WakeReason {
    /// The waiter is the head of the queue: it sends the next request, but not before this moment.
    SendRequest { not_before: Option<Moment> },
    /// The client was closed, and the wait is over.
    Closed,
    /// The lock was handed off to the waiter.
    HandedOff(HoldRef),
    /// The waiter's own local owner holds the lock now: re-enter it.
    Reenter,
}

/// The state of a waiter.
#[derive(Debug)]
pub(super) enum WaiterState {
    /// No reason to wake yet. At most one task waits for it.
    Waiting(Option<Waker>),
    Notified(WakeReason),
    Left,
}

impl Waiter {
    pub(super) const fn new(
        terms: LeaseTerms,
        local_owner: Option<LocalOwner>,
        polls: bool,
    ) -> Self {
        Self {
            terms,
            local_owner,
            polls,
            state: Mutex::new(WaiterState::Waiting(None)),
            queued: AtomicBool::new(false),
        }
    }

    pub(super) fn set_queued(&self, queued: bool) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    pub(super) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    /// Wakes the waiter; returns the reason if the waiter has left. A lock that was handed off, and `Closed`, are never
    /// overwritten by a later reason.
    pub(super) fn wake(&self, reason: WakeReason) -> Option<WakeReason> {
        let mut state = self.lock();
        match &*state {
            WaiterState::Left
            | WaiterState::Notified(WakeReason::HandedOff(_) | WakeReason::Closed) => {
                return Some(reason);
            }
            WaiterState::Waiting(_)
            | WaiterState::Notified(WakeReason::SendRequest { .. } | WakeReason::Reenter) => {}
        }
        let before = std::mem::replace(&mut *state, WaiterState::Notified(reason));
        drop(state);
        if let WaiterState::Waiting(Some(registered)) = before {
            registered.wake();
        }
        None
    }

    /// Returns the next reason to wake.
    pub(super) fn poll_wake(&self, waker: &Waker) -> Poll<WakeReason> {
        let mut state = self.lock();
        let before = match &mut *state {
            WaiterState::Left => return Poll::Pending,
            WaiterState::Waiting(Some(registered)) if registered.will_wake(waker) => {
                return Poll::Pending;
            }
            WaiterState::Waiting(registered) => {
                WaiterState::Waiting(registered.replace(waker.clone()))
            }
            WaiterState::Notified(_) => std::mem::replace(&mut *state, WaiterState::Waiting(None)),
        };
        // The previous waker is dropped without the lock: it may be the last reference to its task.
        drop(state);
        match before {
            WaiterState::Notified(reason) => Poll::Ready(reason),
            WaiterState::Waiting(_) | WaiterState::Left => Poll::Pending,
        }
    }

    /// Marks the waiter as left. The last state, which may contain an undelivered reason, has to be dropped without the
    /// lock of the wait queues.
    pub(super) fn leave(&self) -> WaiterState {
        std::mem::replace(&mut *self.lock(), WaiterState::Left)
    }

    pub(super) fn has_left(&self) -> bool {
        matches!(&*self.lock(), WaiterState::Left)
    }

    fn lock(&self) -> MutexGuard<'_, WaiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
