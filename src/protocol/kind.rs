//! The primitives, and what sets them apart for those who wait and hold.
//!
//! What a primitive *does* is its `apply` and its scripts. This is all the rest of the code may know of
//! it; a new kind has to answer each of these.

use std::time::Duration;

/// The primitives a store knows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// The plain, reentrant lock: Redisson's `RLock`.
    Mutex,
    /// One value that is there or not: the lock of most other libraries.
    Simple,
}

impl Kind {
    /// All of them. What lives under a name is one of these.
    pub const ALL: [Self; 2] = [Self::Mutex, Self::Simple];

    /// Nobody sleeps longer than this without asking again: a message may be lost, and there may be none.
    pub const fn longest_sleep(self) -> Duration {
        match self {
            Self::Mutex => Duration::from_secs(2),
            // Other libraries tell nobody when they give it back.
            Self::Simple => Duration::from_millis(100),
        }
    }

    /// Whether one hold keeps all others out. Behind a hold of our own nobody then needs to ask the
    /// store.
    pub const fn is_exclusive(self) -> bool {
        match self {
            Self::Mutex | Self::Simple => true,
        }
    }

    /// Whether a hold may go from one waiter of a client to the next without the store having a say.
    pub const fn may_be_handed_on(self) -> bool {
        match self {
            Self::Mutex | Self::Simple => true,
        }
    }
}
