//! The fair lock, Redisson's `RFairLock`: first come, first served.
//!
//! A hold is a plain lock's, so that a name's plain and fair locks keep each other out. Who has to wait stands in a line,
//! and only the first in it gets the lock when it is free, or hears that it is.

use std::time::Duration;

use super::line::Line;
use super::marks::Marks;
use super::mutex;
use super::mutex::Mutex;
use super::state::{Outcome, Surroundings};
use super::{Action, Channel, Entry, Moment, OwnerId, Reply, Request};

/// After the grant of a lease shorter than this the next waiter is notified: a waiter asks every three seconds by itself, and
/// the lease may expire before it does.
const SHORT_LEASE: Duration = Duration::from_secs(5);

/// How many waiters a look shows.
pub const SHOWN: usize = 100;

/// Decides one request to the fair lock.
pub fn apply(
    held: &mut Option<Mutex>,
    marks: &mut Marks,
    line: &mut dyn Line,
    request: &Request,
    around: &Surroundings,
) -> Outcome {
    let now = around.now;
    let mut lock = Fair {
        held,
        marks,
        line,
        now,
        told: None,
    };
    let reply = lock.decide(request, around);
    let name = &request.subject.name;
    let news = lock.told.map(|first| match first {
        Some(owner) => Channel::Waiter(name.clone(), owner),
        // Those who want the plain lock of this name stand in no line.
        None => Channel::Lock(name.clone()),
    });
    Outcome {
        reply: Ok(reply),
        news,
    }
}

struct Fair<'a> {
    held: &'a mut Option<Mutex>,
    marks: &'a mut Marks,
    line: &'a mut dyn Line,
    now: Moment,
    /// Who is told that it may be worth asking: the first in line, or nobody in particular.
    told: Option<Option<OwnerId>>,
}

impl Fair<'_> {
    fn decide(&mut self, request: &Request, around: &Surroundings) -> Reply {
        match &request.action {
            Action::Acquire {
                owner,
                entry,
                lease,
                waits,
                ..
            } => self.acquire(owner, *entry, *lease, *waits),
            Action::ForceRelease => {
                let forced = self.held.take().is_some();
                if forced {
                    self.tell_first();
                }
                Reply::Forced(forced)
            }
            Action::Undo { owner, entry } => self.undo(owner, *entry),
            // It goes to the first in line, and not to whom its holder likes.
            Action::Release { owner, .. } | Action::Pass { from: owner, .. } => {
                let left = match request.action {
                    Action::Release { left, .. } => left,
                    _ => 0,
                };
                self.release(owner, left)
            }
            Action::Alter { .. } | Action::Count(_) | Action::Inspect | Action::Renew { .. } => {
                mutex::decide(self.held, self.marks, request, around)
            }
        }
    }

    fn acquire(
        &mut self,
        owner: &OwnerId,
        entry: Entry,
        lease: Duration,
        waits: Option<Duration>,
    ) -> Reply {
        if self.marks.has(owner, entry) {
            return Reply::Undone;
        }
        let now = self.now;
        let reply = match self.held {
            Some(_) => mutex::acquire(self.held, owner, entry, lease, now, || None),
            None if entry != Entry::First => Reply::Gone,
            None => {
                let before = self.line.first().map(|(owner, _)| owner);
                match self.line.first_at(now) {
                    Some(first) if first != *owner => {
                        if before != Some(first) {
                            // Whoever was told that it is free has gone.
                            self.told = Some(Some(first));
                        }
                        Reply::Busy { ttl: None }
                    }
                    _ => mutex::acquire(self.held, owner, entry, lease, now, || None),
                }
            }
        };
        match (reply, waits) {
            (Reply::Granted { token }, _) => {
                let waited = self.line.leave(owner);
                // The next waiter learns with its question when the hold ends.
                if waited && lease < SHORT_LEASE {
                    self.told = self.line.first_at(now).map(Some);
                }
                Reply::Granted { token }
            }
            (Reply::Busy { ttl }, Some(waits)) => {
                self.line.stand(*owner, now + waits);
                let before = self.line.first().map(|(owner, _)| owner);
                // Only the first has to know when the hold ends: the others would all ask at that moment.
                let first = self.line.first_at(now);
                if first != before && first != Some(*owner) {
                    self.told = first.map(Some);
                }
                Reply::Busy {
                    ttl: ttl.filter(|_| first == Some(*owner)),
                }
            }
            (reply, _) => reply,
        }
    }

    fn undo(&mut self, owner: &OwnerId, entry: Entry) -> Reply {
        let reply = mutex::undo(self.held, self.marks, owner, entry, self.now, 0);
        match reply {
            Reply::Released { .. } => {
                // Though it was carried out, it may come: who waits in line asks many times.
                self.marks.put(owner, entry, self.now);
                self.tell_first();
            }
            _ if entry == Entry::First => self.leave_line(owner),
            _ => {}
        }
        reply
    }

    /// Removes every trace of an owner, or lowers its count.
    fn release(&mut self, owner: &OwnerId, left: u32) -> Reply {
        let reply = mutex::release(self.held, owner, left, 0);
        match reply {
            Reply::Released { .. } => self.tell_first(),
            _ if left == 0 => self.leave_line(owner),
            _ => {}
        }
        reply
    }

    /// Whoever is first then has to know: that the lock is free, or when it will be.
    fn leave_line(&mut self, owner: &OwnerId) {
        if !self.line.has(owner) {
            return;
        }
        let was_first = self.line.first_at(self.now) == Some(*owner);
        if self.line.leave(owner) && was_first && self.line.first_at(self.now).is_some() {
            self.tell_first();
        }
    }

    fn tell_first(&mut self) {
        self.told = Some(self.line.first_at(self.now));
    }
}
