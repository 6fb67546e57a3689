//! The fair lock, Redisson's `RFairLock`: first come, first served.
//!
//! A hold is a plain lock's, so that the plain and fair locks of one name exclude each other.
//! Waiters are queued, and only the head of the queue is granted the lock when it is free, or is
//! notified that it is.

use std::time::Duration;

use super::mutex;
use super::mutex::Mutex;
use super::state::{ApplyContext, Outcome};
use super::store_queue::StoreQueue;
use super::tombstones::Tombstones;
use super::{Action, Channel, Entry, Moment, OwnerId, Reply, Request};

/// After the grant of a lease shorter than this the next waiter is notified: a waiter retries by
/// itself only every three seconds, and the lease may expire before it does.
const SHORT_LEASE: Duration = Duration::from_secs(5);

/// The number of waiters in a snapshot.
pub const SHOWN: usize = 100;

/// Decides one request to the fair lock.
pub fn apply(
    held: &mut Option<Mutex>,
    tombstones: &mut Tombstones,
    queue: &mut dyn StoreQueue,
    request: &Request,
    ctx: &ApplyContext,
) -> Outcome {
    let now = ctx.now;
    let mut lock = FairApply {
        held,
        tombstones,
        queue,
        now,
        notify: None,
    };
    let reply = lock.decide(request, ctx);
    let name = &request.subject.name;
    let notify = lock.notify.map(|first| match first {
        Some(owner) => Channel::Waiter(name.clone(), owner),
        // Waiters for the plain lock of this name are not in the queue.
        None => Channel::Lock(name.clone()),
    });
    Outcome {
        reply: Ok(reply),
        notify,
    }
}

struct FairApply<'a> {
    held: &'a mut Option<Mutex>,
    tombstones: &'a mut Tombstones,
    queue: &'a mut dyn StoreQueue,
    now: Moment,
    /// The waiter to notify that a retry may succeed: the head of the queue, or the lock's own
    /// channel if the queue is empty.
    notify: Option<Option<OwnerId>>,
}

impl FairApply<'_> {
    fn decide(&mut self, request: &Request, ctx: &ApplyContext) -> Reply {
        match &request.action {
            Action::Acquire {
                owner,
                entry,
                lease,
                waiter_ttl,
                ..
            } => self.acquire(owner, *entry, *lease, *waiter_ttl),
            Action::ForceRelease => {
                let forced = self.held.take().is_some();
                if forced {
                    self.notify_first();
                }
                Reply::Forced(forced)
            }
            Action::Undo { owner, entry } => self.undo(owner, *entry),
            // The lock goes to the head of the queue, and not to the waiter that its holder would
            // choose.
            Action::Release { owner, .. } | Action::Transfer { from: owner, .. } => {
                let left = match request.action {
                    Action::Release { left, .. } => left,
                    _ => 0,
                };
                self.release(owner, left)
            }
            Action::CounterOp { .. }
            | Action::SemaphoreOp(_)
            | Action::Inspect
            | Action::Renew { .. } => mutex::decide(self.held, self.tombstones, request, ctx),
        }
    }

    fn acquire(
        &mut self,
        owner: &OwnerId,
        entry: Entry,
        lease: Duration,
        waiter_ttl: Option<Duration>,
    ) -> Reply {
        if self.tombstones.contains(owner, entry) {
            return Reply::Undone;
        }
        let now = self.now;
        let reply = match self.held {
            Some(_) => mutex::acquire(self.held, owner, entry, lease, now, || None),
            None if entry != Entry::Fresh => Reply::Gone,
            None => {
                let before = self.queue.first().map(|(owner, _)| owner);
                match self.queue.first_live(now) {
                    Some(first) if first != *owner => {
                        if before != Some(first) {
                            // The waiter that was notified of the release has gone.
                            self.notify = Some(Some(first));
                        }
                        Reply::Busy { ttl: None }
                    }
                    _ => mutex::acquire(self.held, owner, entry, lease, now, || None),
                }
            }
        };
        match (reply, waiter_ttl) {
            (Reply::Granted { token }, _) => {
                let waited = self.queue.remove(owner);
                // Otherwise the next waiter learns from the reply to its own request when the hold
                // ends.
                if waited && lease < SHORT_LEASE {
                    self.notify = self.queue.first_live(now).map(Some);
                }
                Reply::Granted { token }
            }
            (Reply::Busy { ttl }, Some(waiter_ttl)) => {
                self.queue.enqueue(*owner, now + waiter_ttl);
                let before = self.queue.first().map(|(owner, _)| owner);
                // Only the head has to know when the hold ends: the others would all retry at that
                // moment.
                let first = self.queue.first_live(now);
                if first != before && first != Some(*owner) {
                    self.notify = first.map(Some);
                }
                Reply::Busy {
                    ttl: ttl.filter(|_| first == Some(*owner)),
                }
            }
            (reply, _) => reply,
        }
    }

    fn undo(&mut self, owner: &OwnerId, entry: Entry) -> Reply {
        let reply = mutex::undo(self.held, self.tombstones, owner, entry, self.now, 0);
        match reply {
            Reply::Released { .. } => {
                // The acquire was carried out, but may arrive once more: a queued waiter sends it
                // many times.
                self.tombstones.insert(owner, entry, self.now);
                self.notify_first();
            }
            _ if entry == Entry::Fresh => self.leave_queue(owner),
            _ => {}
        }
        reply
    }

    /// Removes every trace of an owner, or lowers its count.
    fn release(&mut self, owner: &OwnerId, left: u32) -> Reply {
        let reply = mutex::release(self.held, owner, left, 0);
        match reply {
            Reply::Released { .. } => self.notify_first(),
            _ if left == 0 => self.leave_queue(owner),
            _ => {}
        }
        reply
    }

    /// Removes a waiter. The next head then has to learn that the lock is free, or when it will be.
    fn leave_queue(&mut self, owner: &OwnerId) {
        if !self.queue.contains(owner) {
            return;
        }
        let was_first = self.queue.first_live(self.now) == Some(*owner);
        if self.queue.remove(owner) && was_first && self.queue.first_live(self.now).is_some() {
            self.notify_first();
        }
    }

    fn notify_first(&mut self) {
        self.notify = Some(self.queue.first_live(self.now));
    }
}
