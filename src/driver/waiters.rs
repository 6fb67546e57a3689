//! The line of local waiters for each name.
//!
//! Only the head of a line talks to the store, and only while nobody here holds the lock: behind a hold
//! of this client one waits for its end, which is always told. A lock that is given back may be passed
//! to the next in line without asking the store, a bounded number of times; then others get their turn.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Core;
use super::hold::Hold;
use super::job::Job;
use super::place::{Head, Place};
use super::seat::{Seat, Turn};
use crate::engine::Listener;
use crate::protocol::acquire::stand_back;
use crate::protocol::lease::{Lease, Terms};
use crate::protocol::{Moment, OwnerId};

/// Waiters that poll do not listen, so nobody counts them: every so many passes are for them.
const PASSES_IN_A_ROW: u32 = 8;

/// All lines of a client.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    places: HashMap<Arc<str>, Place>,
    /// Places kept only because this client stands back there, by when it stops.
    resting: VecDeque<(Moment, Arc<str>)>,
    closed: bool,
}

/// A waiter's place in a line; dropping it leaves the line and lets the next one move up.
#[derive(Debug)]
pub(super) struct Spot {
    core: Arc<Core>,
    name: Arc<str>,
    seat: Option<Arc<Seat>>,
}

impl Spot {
    /// Joins the line. Says when to ask if it is this waiter's turn at once.
    pub(super) fn enter(
        core: &Arc<Core>,
        name: &Arc<str>,
        terms: Terms,
        user: Option<u64>,
    ) -> (Self, Option<Turn>) {
        let now = core.clock.now();
        let mut names = core.waiters.lock();
        names.tidy(now);
        let closed = names.closed;
        let place = names.places.entry(name.clone()).or_default();
        let free = place.holder.is_none() && matches!(place.head, Head::Nobody);
        let (seat, turn) = if closed {
            (None, Some(Turn::Closed))
        } else if free {
            place.head = Head::Standing;
            let not_before = place.stand_back.filter(|until| *until > now);
            (None, Some(Turn::Ask { not_before }))
        } else {
            let seat = Arc::new(Seat::new(terms, user));
            place.line.push_back(seat.clone());
            // Its own owner got the lock since it looked: it must not wait for itself.
            let holder = place.holder.as_ref().and_then(|holder| holder.user);
            let own = user.is_some() && holder == user;
            (Some(seat), own.then_some(Turn::Reenter))
        };
        let spot = Self {
            core: core.clone(),
            name: name.clone(),
            seat,
        };
        (spot, turn)
    }

    /// Takes a seat, so that a lock can be passed to this waiter while it sleeps.
    pub(super) fn sit(&mut self, terms: Terms, user: Option<u64>) {
        if self.seat.is_some() {
            return;
        }
        let seat = Arc::new(Seat::new(terms, user));
        if let Some(place) = self.core.waiters.lock().places.get_mut(&self.name) {
            place.head = Head::Seated(seat.clone());
        }
        self.seat = Some(seat);
    }

    pub(super) const fn is_seated(&self) -> bool {
        self.seat.is_some()
    }

    /// The next thing this waiter is told; without a seat, only that the client is closed.
    pub(super) async fn turn(&self) -> Turn {
        match &self.seat {
            Some(seat) => seat.turn().await,
            None => {
                self.core.closed().await;
                Turn::Closed
            }
        }
    }

    /// Whether somebody is known to hold the lock, here or elsewhere.
    pub(super) fn is_busy(&self) -> bool {
        let names = self.core.waiters.lock();
        let place = names.places.get(&self.name);
        place.is_some_and(|place| place.busy)
    }

    /// Notes what the store said to the head.
    pub(super) fn note(&self, busy: bool) {
        if let Some(place) = self.core.waiters.lock().places.get_mut(&self.name) {
            place.busy = busy;
        }
    }

    /// The line's listener, if it has one.
    pub(super) fn listener(&self) -> Option<Arc<Listener>> {
        let names = self.core.waiters.lock();
        names.places.get(&self.name)?.listener.clone()
    }

    /// Keeps a listener for as long as there is a line.
    pub(super) fn keep(&self, listener: Listener) -> Arc<Listener> {
        let listener = Arc::new(listener);
        let mut names = self.core.waiters.lock();
        if let Some(place) = names.places.get_mut(&self.name) {
            place.listener = Some(listener.clone());
        }
        listener
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        if !self.core.is_forked() {
            let now = self.core.clock.now();
            self.core.waiters.leave(&self.name, self.seat.take(), now);
        }
    }
}

impl Waiters {
    /// The store has granted the lock to this client: from now on the line waits for that hold.
    pub(super) fn granted(&self, hold: &Arc<Hold>) {
        let now = hold.now();
        let mut names = self.lock();
        let place = names.places.entry(hold.name.clone()).or_default();
        place.hold_here(hold.clone());
        place.handed = 0;
        place.granted_at = Some(now);
    }

    /// Passes a hold that is being given back to the next in line, in memory. Says whether it did.
    pub(super) fn hand_on(&self, hold: &Arc<Hold>) -> bool {
        let core = &hold.core;
        let now = hold.now();
        let mut names = self.lock();
        let Some(place) = names.place_held_by(hold) else {
            return false;
        };
        let recent = place
            .granted_at
            .is_some_and(|at| now.since(at) < core.settings.handoff_window);
        if !recent || place.handed >= core.settings.handoff_limit {
            return false;
        }
        let Some(seat) = place.next_like(&hold.terms) else {
            return false;
        };
        let mut state = hold.state();
        // Where the owner has entered again, a recount or a mark of that may still be under way.
        if state.attempts > 1 || !state.lease.may_hand_on(now) {
            return false;
        }
        let lease = state.lease.hand_on(seat.terms, now);
        hold.unwatch(&mut state);
        drop(state);
        let owner = hold.owner.clone();
        let claim = hold.succeed(owner, seat.user, lease);
        place.handed += 1;
        let missed = place.seat_holder(&seat, claim);
        drop(names);
        // It left in this very moment: dropping the claim tries the next one.
        drop(missed);
        true
    }

    /// Whether the store should be asked to give the lock to the next in line in the same breath, and
    /// how many of those who listen are we.
    pub(super) fn may_pass(&self, hold: &Arc<Hold>) -> Option<u32> {
        let mut names = self.lock();
        let place = names.place_held_by(hold)?;
        let fits = hold.terms.keep_alive && hold.terms.max_hold.is_none();
        if !fits || place.passes >= PASSES_IN_A_ROW {
            return None;
        }
        place.next_like(&hold.terms)?;
        place.passes += 1;
        Some(place.own_listeners())
    }

    /// The store has passed the lock from `hold` to `owner`: whoever is next in line gets it.
    pub(super) fn deliver(&self, hold: &Arc<Hold>, owner: OwnerId, sent: Moment) {
        let core = &hold.core;
        let now = hold.now();
        let Some(lease) = Lease::granted(hold.terms, sent, now) else {
            core.cleanup.push(Job::Undo {
                core: core.clone(),
                name: hold.name.clone(),
                kind: hold.kind,
                owner,
                lease: hold.terms.lease,
            });
            return self.vacate(hold, None);
        };
        let mut names = self.lock();
        let place = names.places.entry(hold.name.clone()).or_default();
        let seat = place.next_like(&hold.terms);
        let user = seat.as_ref().and_then(|seat| seat.user);
        let claim = hold.succeed(owner, user, lease);
        place.handed = 0;
        place.granted_at = Some(now);
        let missed = match seat {
            Some(seat) => place.seat_holder(&seat, claim),
            None => {
                place.hold_here(claim.hold().clone());
                Some(Turn::Lock(claim))
            }
        };
        drop(names);
        // Nobody there to take it: dropping the claim gives it back.
        drop(missed);
    }

    /// A hold of this client has ended and the store knows it, or does not answer: the next in line
    /// asks. Where others listened for it, they go first.
    pub(super) fn vacate(&self, hold: &Arc<Hold>, listeners: Option<u32>) {
        let now = hold.now();
        let mut names = self.lock();
        let Some(place) = names.place_held_by(hold) else {
            return;
        };
        place.holder = None;
        let others = listeners.is_some_and(|all| all > place.own_listeners());
        let pollers = place.passes >= PASSES_IN_A_ROW;
        if others || pollers {
            place.passes = 0;
            let until = now + stand_back(hold.id, pollers);
            place.stand_back = Some(until);
            names.resting.push_back((until, hold.name.clone()));
        }
        if let Some(place) = names.places.get(&hold.name)
            && let Head::Seated(seat) = &place.head
        {
            // Asleep until some message; this is one.
            let _ = seat.call(Turn::Ask {
                not_before: place.stand_back,
            });
        }
        let silenced = names.move_up(&hold.name, now);
        drop(names);
        drop(silenced);
    }

    /// The hold of this client on a name, if it has one.
    pub(crate) fn holder(&self, name: &str) -> Option<Arc<Hold>> {
        self.lock().places.get(name)?.holder.clone()
    }

    /// Tells everyone that there is nothing to wait for any more.
    pub(super) fn close(&self) {
        let mut names = self.lock();
        names.closed = true;
        let mut told = Vec::new();
        for place in names.places.values() {
            if let Head::Seated(seat) = &place.head {
                told.push(seat.call(Turn::Closed));
            }
            told.extend(place.line.iter().map(|seat| seat.call(Turn::Closed)));
        }
    }

    fn leave(&self, name: &Arc<str>, seat: Option<Arc<Seat>>, now: Moment) {
        let mut names = self.lock();
        let Some(place) = names.places.get_mut(name) else {
            return;
        };
        let was_head = match (&place.head, &seat) {
            (Head::Standing, None) => true,
            (Head::Seated(head), Some(seat)) => Arc::ptr_eq(head, seat),
            (Head::Nobody | Head::Standing | Head::Seated(_), _) => false,
        };
        // A lock in it that the waiter never saw goes back when this is dropped.
        let unheard = seat.map(|seat| seat.leave());
        if was_head {
            place.head = Head::Nobody;
        } else {
            place.left += 1;
            if place.left * 2 > place.line.len() {
                place.line.retain(|seat| !seat.has_left());
                place.left = 0;
            }
        }
        let silenced = names.move_up(name, now);
        drop(names);
        drop(silenced);
        drop(unheard);
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        // No code of a user's runs under this lock, so a poisoned one is whole.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    /// The place this very hold occupies.
    fn place_held_by(&mut self, hold: &Arc<Hold>) -> Option<&mut Place> {
        let place = self.places.get_mut(&hold.name)?;
        let here = place.holder.as_ref();
        here.is_some_and(|holder| Arc::ptr_eq(holder, hold))
            .then_some(place)
    }

    /// Lets the next in line be the head, if there is none and nobody here holds the lock. Returns the
    /// listener when nobody is left to listen; it is to be dropped without this lock.
    fn move_up(&mut self, name: &Arc<str>, now: Moment) -> Option<Arc<Listener>> {
        let place = self.places.get_mut(name)?;
        let vacant = matches!(place.head, Head::Nobody);
        if vacant && place.holder.is_none() {
            let not_before = place.stand_back.filter(|until| *until > now);
            while let Some(seat) = place.line.pop_front() {
                if seat.call(Turn::Ask { not_before }).is_none() {
                    place.head = Head::Seated(seat);
                    break;
                }
            }
        }
        if !matches!(place.head, Head::Nobody) || place.front().is_some() {
            return None;
        }
        let silenced = place.listener.take();
        self.forget_if_idle(name, now);
        silenced
    }

    /// Forgets places that were kept only to stand back for a while.
    fn tidy(&mut self, now: Moment) {
        while let Some((until, _)) = self.resting.front()
            && *until <= now
        {
            if let Some((_, name)) = self.resting.pop_front() {
                self.forget_if_idle(&name, now);
            }
        }
    }

    fn forget_if_idle(&mut self, name: &Arc<str>, now: Moment) {
        if let Some(place) = self.places.get(name)
            && place.holder.is_none()
            && matches!(place.head, Head::Nobody)
            && place.line.is_empty()
            && place.stand_back.is_none_or(|until| until <= now)
        {
            self.places.remove(name);
        }
    }
}
