//! Those who wait for a fair lock, in the order in which they came.

use std::collections::{BTreeMap, HashMap};

use super::{Moment, OwnerId};

/// One lock's line, wherever a store keeps it.
///
/// Each waiter is believed to be there until a moment that it puts off by asking again. One that has gone is passed over
/// when it has come to be the first, never before: until then its place may still be taken up again.
pub trait StoreQueue {
    /// Who is first, and until when it is believed to be there.
    fn first(&mut self) -> Option<(OwnerId, Moment)>;

    /// Whether somebody stands in it.
    fn contains(&mut self, owner: &OwnerId) -> bool;

    /// Somebody stands in it until then: behind everybody, or where it stood before.
    fn enqueue(&mut self, owner: OwnerId, until: Moment);

    /// Somebody leaves it; says whether it stood in it.
    fn remove(&mut self, owner: &OwnerId) -> bool;

    /// The first so many.
    fn first_n(&mut self, most: usize) -> Vec<OwnerId>;
}

impl dyn StoreQueue + '_ {
    /// Who is first, of those who are there.
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

/// A line in memory. Nothing in it is looked through, however long it is.
#[derive(Clone, Debug, Default)]
pub struct MemoryQueue {
    order: BTreeMap<u64, (OwnerId, Moment)>,
    tickets: HashMap<OwnerId, u64>,
    next: u64,
}

impl MemoryQueue {
    /// Whether nobody stands in it.
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
