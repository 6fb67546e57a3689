//! Where one waiter sits until it is called.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::hold_ref::HoldRef;
use super::owners::LocalOwner;
use crate::protocol::Moment;
use crate::protocol::lease::LeaseTerms;

/// One waiter's seat.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) terms: LeaseTerms,
    pub(super) local_owner: Option<LocalOwner>,
    /// Asks now and then instead of listening.
    pub(super) polls: bool,
    state: Mutex<WaiterState>,
    /// Stands in the line, and not at its head or with the lock. Changed under the line's own lock.
    queued: AtomicBool,
}

/// What a waiter is told.
#[derive(Debug)]
pub(super) enum WakeReason {
    /// You are the head of the line: ask the store, but not before this.
    SendRequest { not_before: Option<Moment> },
    /// There is nothing to wait for any more.
    Closed,
    /// Here it is.
    Transferred(HoldRef),
    /// Your own owner holds it now: enter again.
    Reenter,
}

/// What lies on a seat.
#[derive(Debug)]
pub(super) enum WaiterState {
    /// Nothing to tell yet. One task at a time waits for it.
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

    /// Tells the waiter; gives the word back if the waiter has left. A lock, and
    /// the end of everything, are never overwritten by a lesser word.
    pub(super) fn wake(&self, reason: WakeReason) -> Option<WakeReason> {
        let mut state = self.lock();
        match &*state {
            WaiterState::Left
            | WaiterState::Notified(WakeReason::Transferred(_) | WakeReason::Closed) => {
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

    /// The next word.
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
        // Whoever waited before is dropped without the lock: it may be the last to know of its task.
        drop(state);
        match before {
            WaiterState::Notified(reason) => Poll::Ready(reason),
            WaiterState::Waiting(_) | WaiterState::Left => Poll::Pending,
        }
    }

    /// Nobody sits here any more. What was there last, a word that was never heard perhaps, is to be dropped
    /// without the line's lock.
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
