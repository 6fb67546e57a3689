//! What happens to holds, for those who watch.

use std::collections::HashSet;

use super::{Action, Kind, LockKind, Moment, OwnerId};

/// What happened to a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// It is free because its lease has run out: nobody gave it back.
    Expired,
    /// It was taken from its holder by force. Redis does not tell that from [`Released`](Self::Released).
    Forced,
    /// It is free because its holder's process has ended without giving it back; only where locks end with their process.
    Gone,
    /// Somebody took it.
    Granted,
    /// It was held already when the watch began.
    Held,
    /// It was given back.
    Released,
}

/// Something that happened to a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The lock's name.
    pub name: String,
    /// Which kind of lock it is, as far as the store tells ([`LockKind`]). Not known of a hold that was never seen.
    pub kind: Option<LockKind>,
    /// Whose hold it is about: `<client uuid>:<number>`. Not known of a hold on Redis that ended before it was seen.
    pub owner: Option<String>,
    /// What that owner's client calls itself, if it says.
    pub label: Option<String>,
    /// What happened.
    pub change: Change,
}

/// What became of one hold, as a store tells it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HoldChange {
    /// The lock's name, without a prefix.
    pub name: String,
    /// As which kind whoever changed it asked for the lock; the store alone may have done it.
    pub kind: Option<Kind>,
    /// Whose hold.
    pub owner: String,
    /// What that owner's client calls itself, if the store knows.
    pub label: Option<String>,
    /// What became of it; never [`Change::Held`].
    pub change: Change,
}

impl Change {
    /// What it means for a hold that it is not there any more after this was done.
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

/// What has happened to one lock between two looks at its holders: first the holds that ended, `by` this unless their
/// lease was over, then the new ones.
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

/// Those of some holders who are not among others. Of permits there may be thousands.
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
    fn who_left_comes_before_who_came() {
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
