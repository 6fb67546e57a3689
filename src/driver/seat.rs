//! Where one waiter sits until it is called.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::claim::Claim;
use super::owners::User;
use crate::protocol::Moment;
use crate::protocol::lease::Terms;

/// One waiter's seat.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) terms: Terms,
    pub(super) user: Option<User>,
    /// Asks now and then instead of listening.
    pub(super) polls: bool,
    slot: Mutex<Slot>,
    /// Stands in the line, and not at its head or with the lock. Changed under the line's own lock.
    in_line: AtomicBool,
}

/// What a waiter is told.
#[derive(Debug)]
pub(super) enum Turn {
    /// You are the head of the line: ask the store, but not before this.
    Ask { not_before: Option<Moment> },
    /// There is nothing to wait for any more.
    Closed,
    /// Here it is.
    Lock(Claim),
    /// Your own owner holds it now: enter again.
    Reenter,
}

/// What lies on a seat.
#[derive(Debug)]
pub(super) enum Slot {
    /// Nothing to tell yet. One task at a time waits for it.
    Empty(Option<Waker>),
    Told(Turn),
    Left,
}

impl Seat {
    pub(super) const fn new(terms: Terms, user: Option<User>, polls: bool) -> Self {
        Self {
            terms,
            user,
            polls,
            slot: Mutex::new(Slot::Empty(None)),
            in_line: AtomicBool::new(false),
        }
    }

    pub(super) fn set_in_line(&self, in_line: bool) {
        self.in_line.store(in_line, Ordering::Relaxed);
    }

    pub(super) fn is_in_line(&self) -> bool {
        self.in_line.load(Ordering::Relaxed)
    }

    /// Tells the waiter; gives the word back if the waiter has left. A lock, and
    /// the end of everything, are never overwritten by a lesser word.
    pub(super) fn call(&self, turn: Turn) -> Option<Turn> {
        let mut slot = self.lock();
        match &*slot {
            Slot::Left | Slot::Told(Turn::Lock(_) | Turn::Closed) => return Some(turn),
            Slot::Empty(_) | Slot::Told(Turn::Ask { .. } | Turn::Reenter) => {}
        }
        let before = std::mem::replace(&mut *slot, Slot::Told(turn));
        drop(slot);
        if let Slot::Empty(Some(waiter)) = before {
            waiter.wake();
        }
        None
    }

    /// The next word.
    pub(super) fn poll_turn(&self, waker: &Waker) -> Poll<Turn> {
        let mut slot = self.lock();
        let before = match &mut *slot {
            Slot::Left => return Poll::Pending,
            Slot::Empty(Some(waiter)) if waiter.will_wake(waker) => return Poll::Pending,
            Slot::Empty(waiter) => Slot::Empty(waiter.replace(waker.clone())),
            Slot::Told(_) => std::mem::replace(&mut *slot, Slot::Empty(None)),
        };
        // Whoever waited before is dropped without the lock: it may be the last to know of its task.
        drop(slot);
        match before {
            Slot::Told(turn) => Poll::Ready(turn),
            Slot::Empty(_) | Slot::Left => Poll::Pending,
        }
    }

    /// Nobody sits here any more. What was there last, a word that was never heard perhaps, is to be dropped
    /// without the line's lock.
    pub(super) fn leave(&self) -> Slot {
        std::mem::replace(&mut *self.lock(), Slot::Left)
    }

    pub(super) fn has_left(&self) -> bool {
        matches!(&*self.lock(), Slot::Left)
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
