//! The changes to holds that a watch reports.

use std::collections::HashSet;

use super::{Action, Kind, LockKind, Moment, OwnerId};

/// The ways in which a lock changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// It is free because its lease has expired without a release.
    Expired,
    /// It was released by force. Redis does not distinguish this from [`Released`](Self::Released).
    Forced,
    /// It is free because its holder's process has ended without releasing it; only where locks end
    /// with their process.
    Gone,
    /// An owner acquired it.
    Granted,
    /// It was held already when the watch began.
    Held,
    /// Its holder released it.
    Released,
}

/// One change to a lock, as a watch reports it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The lock's name.
    pub name: String,
    /// The kind of lock, as far as the store reports it ([`LockKind`]). `None` for a hold that was
    /// never seen.
    pub kind: Option<LockKind>,
    /// The owner of the hold: `<client uuid>:<number>`. `None` for a hold on Redis that ended
    /// before it was seen.
    pub owner: Option<String>,
    /// The label of that owner's client, if it has one.
    pub label: Option<String>,
    /// The change.
    pub change: Change,
}

/// A change to one hold, as a store reports it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HoldChange {
    /// The lock's name, without a prefix.
    pub name: String,
    /// The kind as which the lock was requested by the client that changed it; `None` also if the
    /// store itself made the change.
    pub kind: Option<Kind>,
    /// The owner of the hold.
    pub owner: String,
    /// The label of that owner's client, if the store knows it.
    pub label: Option<String>,
    /// The change; never [`Change::Held`].
    pub change: Change,
}

impl Change {
    /// Returns how a hold has ended that is missing after this action.
    pub const fn by(action: &Action) -> Self {
        match action {
            Action::ForceRelease => Self::Forced,
            Action::Acquire { .. }
            | Action::CounterOp { .. }
            | Action::SemaphoreOp(_)
            | Action::Inspect
            | Action::Transfer { .. }
            | Action::Release { .. }
            | Action::Renew { .. }
            | Action::Undo { .. } => Self::Released,
        }
    }
}

/// The owners of one lock, and until when each holds it.
pub type Holders = Vec<(OwnerId, Moment)>;

/// Returns how one lock has changed between two snapshots of its holders: first the holds that
/// ended, by `by` unless their lease had expired, then the new holds.
pub fn changes(
    before: &Holders,
    after: &Holders,
    by: Change,
    now: Moment,
) -> impl Iterator<Item = (OwnerId, Change)> {
    let left = missing(before, after);
    let left = left.map(move |(owner, until)| {
        let change = if *until <= now { Change::Expired } else { by };
        (*owner, change)
    });
    let came = missing(after, before);
    left.chain(came.map(|(owner, _)| (*owner, Change::Granted)))
}

/// Returns the holders in `some` whose owners are not in `among`. There may be thousands, for
/// permits.
fn missing<'a>(some: &'a Holders, among: &Holders) -> impl Iterator<Item = &'a (OwnerId, Moment)> {
    let among: HashSet<OwnerId> = among.iter().map(|(owner, _)| *owner).collect();
    some.iter().filter(move |(owner, _)| !among.contains(owner))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::ClientId;

    #[test]
    fn releases_are_reported_before_grants() {
        let owner = |number| OwnerId::new(ClientId::new([7; 16]), number);
        let at = |second| Moment::at(Duration::from_secs(second));
        let before = vec![(owner(1), at(5)), (owner(2), at(9)), (owner(3), at(9))];
        let after = vec![(owner(2), at(20)), (owner(4), at(20))];
        let changes: Vec<_> = changes(&before, &after, Change::Forced, at(5)).collect();
        let expected = [
            (owner(1), Change::Expired),
            (owner(3), Change::Forced),
            (owner(4), Change::Granted),
        ];
        assert_eq!(changes, expected);
    }
}
