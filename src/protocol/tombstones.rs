//! Tombstones: acquires that were undone before they arrived.

use std::time::Duration;

use super::{ClientId, Entry, Moment, OwnerId};

/// How long an undone request is remembered. The network gives up a request that is still under way
/// long before (TCP_USER_TIMEOUT).
pub const TOMBSTONE_TTL: Duration = Duration::from_secs(5 * 60);

/// The tombstones of one name.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Tombstones(Vec<Tombstone>);

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
struct Tombstone {
    owner: OwnerId,
    attempt: u32,
    until: Moment,
}

impl Tombstones {
    /// Reports whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether an owner's acquire was undone.
    pub fn contains(&self, owner: &OwnerId, entry: Entry) -> bool {
        let attempt = entry.attempt();
        self.0.iter().any(|tombstone| tombstone.is(owner, attempt))
    }

    /// Adds a tombstone for an owner's acquire: it is refused if it still arrives.
    pub fn insert(&mut self, owner: &OwnerId, entry: Entry, now: Moment) {
        let attempt = entry.attempt();
        self.0.retain(|tombstone| !tombstone.is(owner, attempt));
        self.0.push(Tombstone {
            owner: *owner,
            attempt,
            until: now + TOMBSTONE_TTL,
        });
    }

    /// Removes the tombstones of acquires that cannot arrive any more.
    pub fn expire(&mut self, now: Moment) {
        self.0.retain(|tombstone| tombstone.until > now);
    }

    /// Removes the tombstones of a client that has gone: none of its requests can still arrive.
    pub fn remove_client(&mut self, client: ClientId) {
        self.0
            .retain(|tombstone| tombstone.owner.client() != client);
    }
}

impl Tombstone {
    fn is(&self, owner: &OwnerId, attempt: u32) -> bool {
        self.attempt == attempt && self.owner == *owner
    }
}
