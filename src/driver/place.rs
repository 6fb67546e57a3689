//! One lock, as this client sees it: who of us holds it, who asks, who waits.

use std::collections::VecDeque;
use std::sync::Arc;

use super::claim::Claim;
use super::hold::Hold;
use super::seat::{Seat, Turn};
use super::waiters::LONGEST_RUN;
use crate::engine::Listener;
use crate::protocol::Moment;
use crate::protocol::lease::Terms;

/// One lock.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) holder: Option<Arc<Hold>>,
    pub(super) head: Head,
    pub(super) line: VecDeque<Arc<Seat>>,
    /// How many in the line have left it.
    pub(super) left: usize,
    /// What anyone here has last heard of it.
    pub(super) heard: Heard,
    pub(super) listener: Option<Arc<Listener>>,
    /// Passed on in memory since the store last granted it, and when that was.
    pub(super) handed: u32,
    pub(super) granted_at: Option<Moment>,
    /// Since when this client has had it, one after another and without a break for others.
    pub(super) run_since: Option<Moment>,
    pub(super) stand_back: Option<Moment>,
}

/// What the store last said of a lock, or we ourselves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Heard {
    /// Nothing since it was given back.
    #[default]
    Nothing,
    /// Somebody has it.
    Busy,
    /// The store did not say.
    Trouble,
}

#[derive(Debug, Default)]
pub(super) enum Head {
    #[default]
    Nobody,
    /// Asks for the first time and has no seat yet.
    Standing,
    Seated(Arc<Seat>),
}

impl Place {
    /// The hold everyone waits for now. Waiters of the same owner need not.
    pub(super) fn hold_here(&mut self, hold: Arc<Hold>) {
        if hold.user.is_some() {
            let head = match &self.head {
                Head::Seated(seat) => Some(seat),
                Head::Nobody | Head::Standing => None,
            };
            let all = self.line.iter().chain(head);
            for seat in all.filter(|seat| seat.user == hold.user) {
                let _ = seat.call(Turn::Reenter);
            }
        }
        self.heard = Heard::Busy;
        self.holder = Some(hold);
    }

    /// Gives the lock to whoever sits there; gives it back if nobody does any more.
    pub(super) fn seat_holder(&mut self, seat: &Arc<Seat>, claim: Claim) -> Option<Turn> {
        match &self.head {
            Head::Seated(head) if Arc::ptr_eq(head, seat) => self.head = Head::Nobody,
            Head::Nobody | Head::Standing | Head::Seated(_) => {
                self.line.pop_front();
                seat.set_in_line(false);
            }
        }
        self.hold_here(claim.hold().clone());
        seat.call(Turn::Lock(claim))
    }

    /// Lets the next in line be the head, if there is none and nobody here holds the lock. Returns the
    /// listener when nobody is left to listen; it is to be dropped without the line's lock.
    pub(super) fn move_up(&mut self, now: Moment) -> Option<Arc<Listener>> {
        let vacant = matches!(self.head, Head::Nobody);
        if vacant && self.holder.is_none() {
            let not_before = self.stand_back.filter(|until| *until > now);
            while let Some(seat) = self.line.pop_front() {
                seat.set_in_line(false);
                if seat.call(Turn::Ask { not_before }).is_none() {
                    self.head = Head::Seated(seat);
                    break;
                }
                self.left = self.left.saturating_sub(1);
            }
        }
        if !matches!(self.head, Head::Nobody) || self.front().is_some() {
            return None;
        }
        self.listener.take()
    }

    /// Whether there is nothing to remember of it.
    pub(super) fn is_idle(&self, now: Moment) -> bool {
        self.holder.is_none()
            && self.is_deserted()
            && self.stand_back.is_none_or(|until| until <= now)
    }

    pub(super) fn is_held_by(&self, hold: &Arc<Hold>) -> bool {
        let holder = self.holder.as_ref();
        holder.is_some_and(|holder| Arc::ptr_eq(holder, hold))
    }

    /// Whether it is this waiter who asks the store.
    pub(super) fn is_head(&self, seat: Option<&Arc<Seat>>) -> bool {
        match (&self.head, seat) {
            (Head::Standing, None) => true,
            (Head::Seated(head), Some(seat)) => Arc::ptr_eq(head, seat),
            (Head::Nobody | Head::Standing | Head::Seated(_), _) => false,
        }
    }

    /// Whether it is time to let those have a chance who hear of nothing.
    pub(super) fn has_run_long(&self, now: Moment) -> bool {
        let since = self.run_since;
        since.is_some_and(|since| now.since(since) >= LONGEST_RUN)
    }

    /// Whether nobody here asks for it or waits for it.
    pub(super) fn is_deserted(&self) -> bool {
        matches!(self.head, Head::Nobody) && self.line.is_empty()
    }

    /// The next in line, if it wants the lock on these terms.
    pub(super) fn next_like(&mut self, terms: &Terms) -> Option<Arc<Seat>> {
        let next = match &self.head {
            Head::Seated(seat) => Some(seat.clone()),
            Head::Nobody => self.front().cloned(),
            // The head has no seat to get the lock in, and those in line came after it: the store decides.
            Head::Standing => None,
        };
        next.filter(|seat| seat.terms == *terms)
    }

    /// The first in the line who is still there.
    pub(super) fn front(&mut self) -> Option<&Arc<Seat>> {
        while self.line.front().is_some_and(|seat| seat.has_left()) {
            self.line.pop_front();
            self.left = self.left.saturating_sub(1);
        }
        self.line.front()
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
        let terms = Terms {
            lease: Duration::from_secs(30),
            keep_alive: true,
            max_hold: None,
            cut: None,
        };
        let mut place = Place::default();
        place
            .line
            .push_back(Arc::new(Seat::new(terms, None, false)));
        assert!(place.next_like(&terms).is_some(), "it is the first");
        place.head = Head::Standing;
        assert!(place.next_like(&terms).is_none(), "it came later");
    }
}
