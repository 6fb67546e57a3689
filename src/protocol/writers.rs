//! Writers that wait for a read/write lock: readers that come later wait behind them.

use super::fair::SHOWN;
use super::{ClientId, Moment, OwnerId};

/// The waiting writers of one name. Each is believed to be present until a moment that it postpones
/// with every request.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct WaitingWriters(Vec<WaitingWriter>);

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
struct WaitingWriter {
    owner: OwnerId,
    until: Moment,
}

impl WaitingWriters {
    /// Reports whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether any writer is present.
    pub fn any_waiting(&self, now: Moment) -> bool {
        self.0.iter().any(|writer| writer.until > now)
    }

    /// Registers a writer that is believed to be present until then.
    pub fn register(&mut self, owner: OwnerId, until: Moment, now: Moment) {
        self.expire(now);
        self.remove(&owner);
        self.0.push(WaitingWriter { owner, until });
    }

    /// Removes a writer that waits no longer; reports whether it did.
    pub fn remove(&mut self, owner: &OwnerId) -> bool {
        let before = self.0.len();
        self.0.retain(|writer| writer.owner != *owner);
        self.0.len() < before
    }

    /// Returns the writers that are present, starting with the one whose last request is the
    /// oldest.
    pub fn waiting(&self, now: Moment) -> Vec<String> {
        let mut there: Vec<_> = self.0.iter().filter(|writer| writer.until > now).collect();
        there.sort_by_key(|writer| writer.until);
        let shown = there.iter().take(SHOWN);
        shown.map(|writer| writer.owner.to_string()).collect()
    }

    /// Removes the writers that have gone.
    pub fn expire(&mut self, now: Moment) {
        self.0.retain(|writer| writer.until > now);
    }

    /// Removes the writers of a client that has gone: none of its requests can still arrive.
    pub fn remove_client(&mut self, client: ClientId) {
        self.0.retain(|writer| writer.owner.client() != client);
    }
}
