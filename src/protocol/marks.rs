//! Acquires that were taken back before they came.

use std::time::Duration;

use super::{ClientId, Entry, Moment, OwnerId};

/// How long an undone request is remembered. A request still under way is given up by the network
/// (TCP_USER_TIMEOUT) long before.
pub const MARK_TTL: Duration = Duration::from_secs(5 * 60);

/// Those of one name.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Marks(Vec<Mark>);

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
struct Mark {
    owner: OwnerId,
    attempt: u32,
    until: Moment,
}

impl Marks {
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an owner's acquire was taken back.
    pub fn has(&self, owner: &OwnerId, entry: Entry) -> bool {
        let attempt = entry.attempt();
        self.0.iter().any(|mark| mark.is(owner, attempt))
    }

    /// An owner's acquire is taken back: it is refused if it still comes.
    pub fn put(&mut self, owner: &OwnerId, entry: Entry, now: Moment) {
        let attempt = entry.attempt();
        self.0.retain(|mark| !mark.is(owner, attempt));
        self.0.push(Mark {
            owner: *owner,
            attempt,
            until: now + MARK_TTL,
        });
    }

    /// Forgets what cannot come any more.
    pub fn expire(&mut self, now: Moment) {
        self.0.retain(|mark| mark.until > now);
    }

    /// Forgets a client of which nothing can come any more.
    pub fn leave(&mut self, client: ClientId) {
        self.0.retain(|mark| mark.owner.client() != client);
    }
}

impl Mark {
    fn is(&self, owner: &OwnerId, attempt: u32) -> bool {
        self.attempt == attempt && self.owner == *owner
    }
}
