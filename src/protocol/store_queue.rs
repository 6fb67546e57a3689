//! The queue of a fair lock's waiters, in the order of their arrival.

use std::collections::{BTreeMap, HashMap};

use super::{Moment, OwnerId};

/// One lock's queue, wherever a store keeps it.
///
/// Each waiter is believed to be present until a moment that it postpones with every request. A
/// waiter that has gone is skipped when it has become the head, never before: until then it may
/// still come back to its place.
pub trait StoreQueue {
    /// Returns the head, and until when it is believed to be present.
    fn first(&mut self) -> Option<(OwnerId, Moment)>;

    /// Reports whether this waiter is in the queue.
    fn contains(&mut self, owner: &OwnerId) -> bool;

    /// Adds a waiter that is believed to be present until then: at the end, or where it already is.
    fn enqueue(&mut self, owner: OwnerId, until: Moment);

    /// Removes a waiter; reports whether it was in the queue.
    fn remove(&mut self, owner: &OwnerId) -> bool;

    /// Returns the first `most` waiters.
    fn first_n(&mut self, most: usize) -> Vec<OwnerId>;
}

impl dyn StoreQueue + '_ {
    /// Removes heads that have gone and returns the first waiter that is present.
    pub(super) fn first_live(&mut self, now: Moment) -> Option<OwnerId> {
        while let Some((owner, until)) = self.first() {
            if until > now {
                return Some(owner);
            }
            self.remove(&owner);
        }
        None
    }
}

/// A queue in memory. No operation scans it, however long it is.
#[derive(Clone, Debug, Default)]
pub struct MemoryQueue {
    order: BTreeMap<u64, (OwnerId, Moment)>,
    tickets: HashMap<OwnerId, u64>,
    next: u64,
}

impl MemoryQueue {
    /// Reports whether the queue has no waiters.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl StoreQueue for MemoryQueue {
    fn first(&mut self) -> Option<(OwnerId, Moment)> {
        self.order.first_key_value().map(|(_, waiter)| *waiter)
    }

    fn contains(&mut self, owner: &OwnerId) -> bool {
        self.tickets.contains_key(owner)
    }

    fn enqueue(&mut self, owner: OwnerId, until: Moment) {
        let next = &mut self.next;
        let ticket = *self.tickets.entry(owner).or_insert_with(|| {
            *next += 1;
            *next
        });
        self.order.insert(ticket, (owner, until));
    }

    fn remove(&mut self, owner: &OwnerId) -> bool {
        let ticket = self.tickets.remove(owner);
        ticket.is_some_and(|ticket| self.order.remove(&ticket).is_some())
    }

    fn first_n(&mut self, most: usize) -> Vec<OwnerId> {
        let waiters = self.order.values().take(most);
        waiters.map(|(owner, _)| *owner).collect()
    }
}
