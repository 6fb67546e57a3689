//! The kinds of lock that are requested under one name.

use distlock::internals::protocol::Kind;

use super::support::SeededRng;

/// The kinds of lock that are requested under one name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kinds {
    /// These kinds, by turns.
    Any(&'static [Kind]),
    /// This kind alone.
    Only(Kind),
}

impl Kinds {
    /// Returns the kind whose channel the listeners subscribe to.
    pub(crate) const fn main(self) -> Kind {
        match self {
            Self::Any(kinds) => kinds[0],
            Self::Only(kind) => kind,
        }
    }

    /// Returns whether the name may hold a state of another kind than a request expects.
    pub(crate) fn may_be_wrong(self) -> bool {
        match self {
            Self::Any(kinds) => kinds
                .iter()
                .any(|kind| kind.state_kind() != kinds[0].state_kind()),
            Self::Only(_) => false,
        }
    }

    /// Returns the kind that an owner requests: no client requests two kinds as one owner.
    pub(crate) const fn of(self, who: usize) -> Kind {
        match self {
            Self::Any(kinds) => kinds[who % kinds.len()],
            Self::Only(kind) => kind,
        }
    }

    pub(crate) fn pick(self, rng: &mut SeededRng) -> Kind {
        match self {
            Self::Any(kinds) => *rng.pick(kinds),
            Self::Only(kind) => kind,
        }
    }
}
