//! What a request did to those who hold something, for those who watch.

use super::{Action, Moment, OwnerId};

/// What became of one hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// Its lease has run out.
    Expired,
    /// It was taken by force.
    Forced,
    /// Its owner's client has ended without a word.
    Gone,
    /// It has begun.
    Granted,
    /// It was given back.
    Released,
}

impl Turn {
    /// What it means for a hold that it is not there any more after this was done.
    pub const fn by(action: &Action) -> Self {
        match action {
            Action::ForceRelease => Self::Forced,
            Action::Acquire { .. }
            | Action::Inspect
            | Action::Pass { .. }
            | Action::Release { .. }
            | Action::Renew { .. }
            | Action::Undo { .. } => Self::Released,
        }
    }
}

/// Who holds something, and until when.
pub type Holders = Vec<(OwnerId, Moment)>;

/// What has happened between two looks at those who hold one thing: first who left it, by this `way` unless the lease
/// was over, then who got it.
pub fn turns(
    before: &Holders,
    after: &Holders,
    way: Turn,
    now: Moment,
) -> impl Iterator<Item = (OwnerId, Turn)> {
    let left = before.iter().filter(|hold| !holds(after, hold.0));
    let left = left.map(move |(owner, until)| {
        let turn = if *until <= now { Turn::Expired } else { way };
        (*owner, turn)
    });
    let came = after.iter().filter(|hold| !holds(before, hold.0));
    left.chain(came.map(|(owner, _)| (*owner, Turn::Granted)))
}

fn holds(holders: &Holders, owner: OwnerId) -> bool {
    holders.iter().any(|(holder, _)| *holder == owner)
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
        let turns: Vec<_> = turns(&before, &after, Turn::Forced, at(5)).collect();
        let expected = [
            (owner(1), Turn::Expired),
            (owner(3), Turn::Forced),
            (owner(4), Turn::Granted),
        ];
        assert_eq!(turns, expected);
    }
}
