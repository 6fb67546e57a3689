//! One waiter's place in a line.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Core;
use super::acquire::Wish;
use super::clock::Sleeping;
use super::hold::Hold;
use super::place::{Head, Heard};
use super::seat::{Seat, Turn};
use super::waiters::Asker;
use crate::engine::Listener;
use crate::engine::wakeups::{Shield, Wakeups};
use crate::protocol::{Moment, Subject, Wanted};

/// A waiter's place in a line; dropping it leaves the line and lets the next one move up.
#[derive(Debug)]
pub(super) struct Spot<'a> {
    core: &'a Arc<Core>,
    subject: &'a Subject,
    wanted: Wanted,
    seat: Option<Arc<Seat>>,
    /// It has left the line with the lock.
    gone: bool,
    /// Somebody had the lock when this waiter came.
    came_busy: bool,
}

impl<'a> Spot<'a> {
    /// Joins the line. Says when to ask if it is this waiter's turn at once.
    pub(super) fn enter(core: &'a Arc<Core>, wish: &'a Wish, now: Moment) -> (Self, Option<Turn>) {
        let Wish {
            subject,
            user,
            permits: wanted,
            ..
        } = wish;
        let mut names = core.waiters.lock();
        names.tidy(now);
        let closed = names.closed;
        let place = names.make(subject, *wanted);
        let free = place.holder.is_none() && matches!(place.head, Head::Nobody);
        let came_busy = place.heard == Heard::Busy;
        let (seat, turn) = if closed {
            (None, Some(Turn::Closed))
        } else if free {
            place.head = Head::Standing;
            let not_before = place.stand_back.filter(|until| *until > now);
            (None, Some(Turn::Ask { not_before }))
        } else {
            let seat = Arc::new(seat(wish));
            seat.set_in_line(true);
            place.line.push_back(seat.clone());
            if let Head::Seated(head) = &place.head
                && head.polls
                && !seat.polls
            {
                // It sleeps as long as it likes; in company it has to listen.
                let _ = head.call(Turn::Ask { not_before: None });
            }
            // Its own owner got the lock since it looked: it must not wait for itself.
            let holder = place.holder.as_ref().and_then(|holder| holder.user);
            let own = user.is_some() && holder == *user;
            (Some(seat), own.then_some(Turn::Reenter))
        };
        let spot = Self {
            core,
            subject,
            wanted: *wanted,
            seat,
            gone: false,
            came_busy,
        };
        (spot, turn)
    }

    /// The store has granted the lock to this waiter, who asked for the line.
    pub(super) fn hold(mut self, hold: &Arc<Hold>, now: Moment) {
        self.gone = true;
        let asker = Asker::Head(self.wanted, self.seat.take());
        self.core.waiters.granted(hold, asker, now);
    }

    /// The lock was passed to this waiter, who has its seat no longer.
    pub(super) const fn taken(&mut self) {
        self.gone = true;
    }

    /// Takes a seat, so that a lock can be passed to this waiter while it sleeps.
    pub(super) fn sit(&mut self, wish: &Wish) {
        if self.seat.is_some() {
            return;
        }
        let seat = Arc::new(seat(wish));
        let mut names = self.core.waiters.lock();
        if names.closed {
            let _ = seat.call(Turn::Closed);
        }
        if let Some(place) = names.find_mut(self.subject, self.wanted) {
            place.head = Head::Seated(seat.clone());
        }
        self.seat = Some(seat);
    }

    pub(super) const fn is_seated(&self) -> bool {
        self.seat.is_some()
    }

    /// Waits to be called, until time is over.
    pub(super) fn in_line(&self, deadline: Option<Moment>) -> InLine<'_> {
        InLine {
            seat: self.seat.as_deref(),
            sleeping: self.core.clock.sleep_until(deadline),
            wakeups: &self.core.wakeups,
            shield: Shield::NONE,
        }
    }

    /// The next thing this waiter is told; without a seat, only that the client is closed.
    pub(super) async fn turn(&self) -> Turn {
        match &self.seat {
            Some(seat) => {
                let told = poll_fn(|cx| seat.poll_turn(cx.waker()));
                self.core.wakeups.shield(told).await
            }
            None => {
                self.core.closed().await;
                Turn::Closed
            }
        }
    }

    /// Whether somebody held the lock when this waiter came, or is known to hold it now.
    pub(super) fn is_busy(&self) -> bool {
        let names = self.core.waiters.lock();
        match names
            .find(self.subject, self.wanted)
            .map(|place| place.heard)
        {
            Some(Heard::Busy) => true,
            Some(Heard::Trouble) => false,
            Some(Heard::Nothing) | None => self.came_busy,
        }
    }

    /// Whether somebody in the line behind this waiter counts on messages.
    pub(super) fn has_listening_company(&self) -> bool {
        let names = self.core.waiters.lock();
        let place = names.find(self.subject, self.wanted);
        place.is_some_and(|place| {
            place
                .line
                .iter()
                .any(|seat| !seat.polls && !seat.has_left())
        })
    }

    /// Whether it is this waiter who asks the store.
    pub(super) fn is_head(&self) -> bool {
        let names = self.core.waiters.lock();
        let place = names.find(self.subject, self.wanted);
        place.is_some_and(|place| place.is_head(self.seat.as_ref()))
    }

    /// Notes what the store said to the head.
    pub(super) fn note(&self, busy: bool) {
        if let Some(place) = self.core.waiters.lock().find_mut(self.subject, self.wanted) {
            place.heard = if busy { Heard::Busy } else { Heard::Trouble };
            place.run_since = None;
        }
    }

    /// The line's listener, if it has one.
    pub(super) fn listener(&self) -> Option<Arc<Listener>> {
        let names = self.core.waiters.lock();
        names.find(self.subject, self.wanted)?.listener.clone()
    }

    /// Lets go of the line's listener.
    pub(super) fn stop_listening(&self) {
        let mut names = self.core.waiters.lock();
        let place = names.find_mut(self.subject, self.wanted);
        let silenced = place.and_then(|place| place.listener.take());
        drop(names);
        drop(silenced);
    }

    /// Keeps a listener for as long as there is a line.
    pub(super) fn keep(&self, listener: Listener) -> Arc<Listener> {
        let listener = Arc::new(listener);
        let mut names = self.core.waiters.lock();
        if let Some(place) = names.find_mut(self.subject, self.wanted) {
            place.listener = Some(listener.clone());
        }
        listener
    }
}

/// Sits until called; `None` when time is over. Written out, because ten thousand may sit here.
pub(super) struct InLine<'a> {
    seat: Option<&'a Seat>,
    sleeping: Sleeping<'a>,
    wakeups: &'a Wakeups,
    shield: Shield,
}

impl Future for InLine<'_> {
    type Output = Option<Turn>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Turn>> {
        let this = &mut *self;
        let waker = this.shield.waker(this.wakeups, cx.waker());
        let called = this.seat.map(|seat| seat.poll_turn(waker));
        match called {
            Some(Poll::Ready(turn)) => Poll::Ready(Some(turn)),
            Some(Poll::Pending) | None => Pin::new(&mut this.sleeping).poll(cx).map(|()| None),
        }
    }
}

fn seat(wish: &Wish) -> Seat {
    Seat::new(wish.terms, wish.user, wish.polls())
}

impl Drop for Spot<'_> {
    fn drop(&mut self) {
        if !self.gone && !self.core.is_forked() {
            let now = self.core.clock.now();
            let seat = self.seat.take();
            self.core
                .waiters
                .leave(self.subject, self.wanted, seat, now);
        }
    }
}
