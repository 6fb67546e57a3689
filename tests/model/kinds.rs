//! Which locks are asked for under one name.

use distlock::internals::protocol::Kind;

use super::support::SeededRng;

/// Which locks are asked for under one name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kinds {
    /// These, one after the other.
    Any(&'static [Kind]),
    /// This one.
    Only(Kind),
}

impl Kinds {
    /// The one where those listen who wait.
    pub(crate) const fn main(self) -> Kind {
        match self {
            Self::Any(kinds) => kinds[0],
            Self::Only(kind) => kind,
        }
    }

    /// Whether what lives under the name may be something that cannot be asked for.
    pub(crate) fn may_be_wrong(self) -> bool {
        match self {
            Self::Any(kinds) => kinds
                .iter()
                .any(|kind| kind.state_kind() != kinds[0].state_kind()),
            Self::Only(_) => false,
        }
    }

    /// What one of the owners asks for: no client asks for two kinds as one owner.
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
