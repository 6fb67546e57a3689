//! The primitives, and what sets them apart for those who wait and hold.
//!
//! What a primitive *does* is its `apply` and its scripts. This is all the rest of the code may know of
//! it; a new kind has to answer each of these.

/// The primitives a store knows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// The plain, reentrant lock: Redisson's `RLock`.
    Mutex,
}

impl Kind {
    /// Whether one hold keeps all others out. Behind a hold of our own nobody then needs to ask the
    /// store.
    pub const fn is_exclusive(self) -> bool {
        match self {
            Self::Mutex => true,
        }
    }

    /// Whether a hold may go from one waiter of a client to the next without the store having a say.
    pub const fn may_be_handed_on(self) -> bool {
        match self {
            Self::Mutex => true,
        }
    }
}
