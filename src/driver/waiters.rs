//! The line of local waiters for each lock.
//!
//! Only the head of a line talks to the store, and only while nobody here holds the lock: behind a hold
//! of this client one waits for its end, which is always told. A lock that is given back may be passed
//! to the next in line without asking the store, a bounded number of times; then others get their turn.
//!
//! Of a semaphore those who want the same stand in one line, and those who want something else in another: what is too much
//! for the one may be there for the other, and only the store knows who comes first.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::HashMap;

use super::hold::Hold;
use super::job::Job;
use super::place::{Head, Heard, Place};
use super::seat::{Seat, Turn};
use crate::protocol::acquire::stand_back;
use crate::protocol::lease::Lease;
use crate::protocol::{FencingToken, Moment, OwnerId, Subject, Wanted};

/// Waiters that poll do not listen, so nobody counts them: whoever has had a lock for this long without a
/// break makes one for them.
pub(super) const LONGEST_RUN: Duration = Duration::from_millis(100);

/// Who asked the store for a lock that was granted.
#[derive(Debug)]
pub(super) enum Asker {
    /// The head of the line of those who want that, on its seat if it has one.
    Head(Wanted, Option<Arc<Seat>>),
    PastTheLine,
}

/// What became of a hold that is given back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Handed {
    /// It is another's now.
    On,
    /// It has to go through the store. Whether anybody here may be waiting for it.
    Not { wanted: bool },
}

/// All lines of a client.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
pub(super) struct Names {
    places: HashMap<Subject, Place>,
    /// Of those who want something else than one. Apart, so that locks do not pay for that.
    others: HashMap<(Subject, Wanted), Place>,
    /// Places kept only because this client stands back there, by when it stops.
    resting: VecDeque<(Moment, Subject)>,
    pub(super) closed: bool,
}

impl Waiters {
    /// The store has granted the lock to this client: from now on the line waits for that hold, if it
    /// keeps all others out. Who asked for the line leaves it.
    pub(super) fn granted(&self, hold: &Arc<Hold>, asker: Asker, now: Moment) {
        let mut names = self.lock();
        // Lost before anybody saw it, it has been vacated: nobody would ever clear it away.
        let holds = hold.subject.kind.is_exclusive() && hold.state().lease.end().is_none();
        let wanted = match &asker {
            Asker::Head(wanted, _) => *wanted,
            Asker::PastTheLine => Wanted::ONE,
        };
        let place = match holds {
            true => names.make(&hold.subject, wanted),
            false => match names.find_mut(&hold.subject, wanted) {
                Some(place) => place,
                None => return,
            },
        };
        if holds {
            place.hold_here(hold.clone());
            place.handed = 0;
            place.granted_at = Some(now);
            place.run_since.get_or_insert(now);
        }
        let unheard = match asker {
            Asker::PastTheLine => None,
            Asker::Head(_, seat) => {
                if place.is_head(seat.as_ref()) {
                    place.head = Head::Nobody;
                }
                // A lock in it that the waiter never saw goes back when this is dropped.
                seat.map(|seat| seat.leave())
            }
        };
        let silenced = place.move_up(now);
        if place.is_idle(now) {
            names.forget(&hold.subject, wanted);
        }
        drop(names);
        drop(silenced);
        drop(unheard);
    }

    /// Passes a hold that is being given back to the next in line, in memory.
    pub(super) fn hand_on(&self, hold: &Arc<Hold>, now: Moment) -> Handed {
        let wanted = Handed::Not { wanted: true };
        if !hold.subject.kind.may_be_handed_on() {
            return wanted;
        }
        let core = &hold.core;
        let mut names = self.lock();
        let Some(place) = names.place_held_by(hold) else {
            return wanted;
        };
        if place.is_deserted() {
            return Handed::Not { wanted: false };
        }
        let recent = place
            .granted_at
            .is_some_and(|at| now.since(at) < core.settings.handoff_window);
        let exhausted = !recent || place.handed >= core.settings.handoff_limit;
        if exhausted && !planted!(HandedForEver) {
            return wanted;
        }
        let Some(seat) = place.next_like(&hold.terms) else {
            return wanted;
        };
        let mut state = hold.state();
        // Where the owner has entered again, a recount or a mark of that may still be under way.
        if state.attempts > 1 || !state.lease.may_hand_on(now) {
            return wanted;
        }
        let lease = state.lease.hand_on(seat.terms, now);
        hold.unwatch(&mut state);
        drop(state);
        let claim = hold.succeed(hold.owner, hold.token, seat.user, lease);
        place.handed += 1;
        let missed = place.seat_holder(&seat, claim);
        if planted!(HandedTwice)
            && let Some(second) = place.next_like(&hold.terms)
        {
            let lease = hold.state().lease.hand_on(second.terms, now);
            let claim = hold.succeed(hold.owner, hold.token, second.user, lease);
            drop(place.seat_holder(&second, claim));
        }
        let silenced = place.move_up(now);
        drop(names);
        drop(silenced);
        // It left in this very moment: dropping the claim tries the next one.
        drop(missed);
        Handed::On
    }

    /// Whether the store should be asked to give the lock to the next in line in the same breath, and
    /// how many of those who listen are we.
    pub(super) fn may_pass(&self, hold: &Arc<Hold>, now: Moment) -> Option<u32> {
        let mut names = self.lock();
        let place = names.place_held_by(hold)?;
        let fits = hold.subject.kind.may_be_passed()
            && hold.terms.keep_alive
            && hold.terms.max_hold.is_none();
        if !fits || place.has_run_long(now) {
            return None;
        }
        place.next_like(&hold.terms)?;
        Some(place.own_listeners())
    }

    /// The store has passed the lock from `hold` to `owner`: whoever is next in line gets it.
    pub(super) fn deliver(
        &self,
        hold: &Arc<Hold>,
        owner: OwnerId,
        token: Option<FencingToken>,
        sent: Moment,
    ) {
        let core = &hold.core;
        let now = hold.now();
        let Some(lease) = Lease::granted(hold.terms, sent, now) else {
            let undo = Job::undo(core, &hold.subject, owner, hold.terms.lease);
            core.cleanup.push(undo);
            return self.vacate(hold, None, now);
        };
        let mut names = self.lock();
        let place = names.places.entry(hold.subject.clone()).or_default();
        let seat = place.next_like(&hold.terms);
        let user = seat.as_ref().and_then(|seat| seat.user);
        let claim = hold.succeed(owner, token, user, lease);
        place.handed = 0;
        place.granted_at = Some(now);
        let missed = match seat {
            Some(seat) => place.seat_holder(&seat, claim),
            None => {
                place.hold_here(claim.hold().clone());
                Some(Turn::Lock(claim))
            }
        };
        let silenced = place.move_up(now);
        drop(names);
        drop(silenced);
        if planted!(PassedToNobody) {
            return std::mem::forget(missed);
        }
        // Nobody there to take it: dropping the claim gives it back.
        drop(missed);
    }

    /// A hold of this client has ended and the store knows it, or does not answer: the next in line
    /// asks. Where others listened for it, they go first.
    pub(super) fn vacate(&self, hold: &Arc<Hold>, listeners: Option<u32>, now: Moment) {
        let mut names = self.lock();
        names.tidy(now);
        let Names {
            places, resting, ..
        } = &mut *names;
        let Entry::Occupied(mut entry) = places.entry(hold.subject.clone()) else {
            return;
        };
        let place = entry.get_mut();
        if !place.is_held_by(hold) {
            return;
        }
        place.holder = None;
        // Nobody has it, as far as we know; the next one to ask will hear.
        place.heard = Heard::Nothing;
        let others = listeners.is_some_and(|all| all > place.own_listeners());
        // Where nobody here waits for it, it lies free often enough.
        let pollers = place.has_run_long(now) && !place.is_deserted();
        if others || pollers {
            place.run_since = None;
            let until = now + stand_back(hold.core.fresh_seed(), pollers);
            place.stand_back = Some(until);
            resting.push_back((until, hold.subject.clone()));
        }
        if let Head::Seated(seat) = &place.head {
            // Asleep until some message; this is one.
            let _ = seat.call(Turn::Ask {
                not_before: place.stand_back,
            });
        }
        if planted!(NextNotCalled) {
            return;
        }
        let silenced = place.move_up(now);
        if place.is_idle(now) {
            entry.remove();
        }
        drop(names);
        drop(silenced);
    }

    /// How many wait in the lines, for those who debug.
    pub(super) fn waiting(&self) -> usize {
        let names = self.lock();
        names
            .all()
            .map(|place| place.line.len().saturating_sub(place.left))
            .sum()
    }

    /// Some of the names that are held or waited for here, for those who debug.
    pub(super) fn some_names(&self, most: usize) -> Vec<Arc<str>> {
        let names = self.lock();
        let others = names.others.keys().map(|(subject, _)| subject);
        let subjects = names.places.keys().chain(others).take(most);
        subjects.map(|subject| subject.name.clone()).collect()
    }

    /// The hold of this client on an exclusive lock, if it has one.
    pub(super) fn holder(&self, subject: &Subject) -> Option<Arc<Hold>> {
        self.lock().places.get(subject)?.holder.clone()
    }

    /// Tells everyone that there is nothing to wait for any more.
    pub(super) fn close(&self) {
        let mut names = self.lock();
        names.closed = true;
        let mut told = Vec::new();
        for place in names.all() {
            if let Head::Seated(seat) = &place.head {
                told.push(seat.call(Turn::Closed));
            }
            told.extend(place.line.iter().map(|seat| seat.call(Turn::Closed)));
        }
    }

    pub(super) fn leave(
        &self,
        subject: &Subject,
        wanted: Wanted,
        seat: Option<Arc<Seat>>,
        now: Moment,
    ) {
        let mut names = self.lock();
        let Some(place) = names.find_mut(subject, wanted) else {
            return;
        };
        let was_head = place.is_head(seat.as_ref());
        let was_in_line = seat.as_ref().is_some_and(|seat| seat.is_in_line());
        // A lock in it that the waiter never saw goes back when this is dropped.
        let unheard = seat.map(|seat| seat.leave());
        if was_head && planted!(CancelledHeadKeepsTurn) {
            // Its seat stays taken.
        } else if was_head {
            place.head = Head::Nobody;
        } else if was_in_line {
            place.left += 1;
            if place.left * 2 > place.line.len() {
                place.line.retain(|seat| !seat.has_left());
                place.left = 0;
            }
        }
        let silenced = place.move_up(now);
        if place.is_idle(now) {
            names.forget(subject, wanted);
        }
        drop(names);
        drop(silenced);
        drop(unheard);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Names> {
        // No code of a user's runs under this lock, so a poisoned one is whole.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    pub(super) fn find(&self, subject: &Subject, wanted: Wanted) -> Option<&Place> {
        match wanted {
            Wanted::ONE => self.places.get(subject),
            wanted => self.others.get(&(subject.clone(), wanted)),
        }
    }

    pub(super) fn find_mut(&mut self, subject: &Subject, wanted: Wanted) -> Option<&mut Place> {
        match wanted {
            Wanted::ONE => self.places.get_mut(subject),
            wanted => self.others.get_mut(&(subject.clone(), wanted)),
        }
    }

    /// The place that is there, or a new one.
    pub(super) fn make(&mut self, subject: &Subject, wanted: Wanted) -> &mut Place {
        match wanted {
            Wanted::ONE => self.places.entry(subject.clone()).or_default(),
            wanted => self.others.entry((subject.clone(), wanted)).or_default(),
        }
    }

    fn forget(&mut self, subject: &Subject, wanted: Wanted) {
        match wanted {
            Wanted::ONE => self.places.remove(subject),
            wanted => self.others.remove(&(subject.clone(), wanted)),
        };
    }

    fn all(&self) -> impl Iterator<Item = &Place> {
        self.places.values().chain(self.others.values())
    }

    /// The place this very hold occupies.
    fn place_held_by(&mut self, hold: &Arc<Hold>) -> Option<&mut Place> {
        let place = self.places.get_mut(&hold.subject)?;
        place.is_held_by(hold).then_some(place)
    }

    /// Forgets places that were kept only to stand back for a while.
    pub(super) fn tidy(&mut self, now: Moment) {
        while let Some((until, _)) = self.resting.front()
            && *until <= now
        {
            if let Some((_, subject)) = self.resting.pop_front()
                && self
                    .places
                    .get(&subject)
                    .is_some_and(|place| place.is_idle(now))
            {
                self.places.remove(&subject);
            }
        }
    }
}
