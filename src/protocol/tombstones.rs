//! Acquires that were taken back before they came.

use std::time::Duration;

use super::{ClientId, Entry, Moment, OwnerId};

/// How long an undone request is remembered. A request still under way is given up by the network
/// (TCP_USER_TIMEOUT) long before.
pub const TOMBSTONE_TTL: Duration = Duration::from_secs(5 * 60);

/// Those of one name.
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
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an owner's acquire was taken back.
    pub fn contains(&self, owner: &OwnerId, entry: Entry) -> bool {
        let attempt = entry.attempt();
        self.0.iter().any(|tombstone| tombstone.is(owner, attempt))
    }

    /// An owner's acquire is taken back: it is refused if it still comes.
    pub fn insert(&mut self, owner: &OwnerId, entry: Entry, now: Moment) {
        let attempt = entry.attempt();
        self.0.retain(|tombstone| !tombstone.is(owner, attempt));
        self.0.push(Tombstone {
            owner: *owner,
            attempt,
            until: now + TOMBSTONE_TTL,
        });
    }

    /// Forgets what cannot come any more.
    pub fn expire(&mut self, now: Moment) {
        self.0.retain(|tombstone| tombstone.until > now);
    }

    /// Forgets a client of which nothing can come any more.
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
