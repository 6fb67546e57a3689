//! Writers that wait for a read/write lock: readers that come later wait behind them.

use super::fair::SHOWN;
use super::{ClientId, Moment, OwnerId};

/// Those of one name. Each is believed to be there until a moment that it puts off by asking again.
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
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them is there.
    pub fn any_waiting(&self, now: Moment) -> bool {
        self.0.iter().any(|writer| writer.until > now)
    }

    /// One waits until then.
    pub fn register(&mut self, owner: OwnerId, until: Moment, now: Moment) {
        self.expire(now);
        self.remove(&owner);
        self.0.push(WaitingWriter { owner, until });
    }

    /// One waits no longer; says whether it did.
    pub fn remove(&mut self, owner: &OwnerId) -> bool {
        let before = self.0.len();
        self.0.retain(|writer| writer.owner != *owner);
        self.0.len() < before
    }

    /// Who is there, the one that asked least lately first.
    pub fn waiting(&self, now: Moment) -> Vec<String> {
        let mut there: Vec<_> = self.0.iter().filter(|writer| writer.until > now).collect();
        there.sort_by_key(|writer| writer.until);
        let shown = there.iter().take(SHOWN);
        shown.map(|writer| writer.owner.to_string()).collect()
    }

    /// Forgets who has gone.
    pub fn expire(&mut self, now: Moment) {
        self.0.retain(|writer| writer.until > now);
    }

    /// Forgets a client of which nothing can come any more.
    pub fn remove_client(&mut self, client: ClientId) {
        self.0.retain(|writer| writer.owner.client() != client);
    }
}
