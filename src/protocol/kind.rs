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
    /// The same with a token for each grant: Redisson's `RFencedLock`.
    Fenced,
    /// The same, first come, first served: Redisson's `RFairLock`.
    Fair,
    /// The reader's side of the read/write lock: Redisson's `RReadWriteLock`.
    Read,
    /// The writer's.
    Write,
    /// One value that is there or not: the lock of most other libraries.
    Simple,
}

/// What is kept under a name. Kinds of one shape keep each other out; those of different shapes cannot share a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// An owner, and how often it holds the lock.
    Counted,
    /// Readers, or a writer, and how often each holds the lock.
    Shared,
    /// An owner.
    Value,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Mutex,
        Self::Fenced,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Simple,
    ];

    /// What is kept of it.
    pub const fn shape(self) -> Shape {
        match self {
            Self::Mutex | Self::Fenced | Self::Fair => Shape::Counted,
            Self::Read | Self::Write => Shape::Shared,
            Self::Simple => Shape::Value,
        }
    }

    /// Whether each grant has a token.
    pub const fn is_fenced(self) -> bool {
        match self {
            Self::Fenced => true,
            Self::Mutex | Self::Fair | Self::Read | Self::Write | Self::Simple => false,
        }
    }

    /// Whether the store keeps the line of those who wait, each by itself.
    pub const fn has_line(self) -> bool {
        match self {
            Self::Fair => true,
            Self::Mutex | Self::Fenced | Self::Read | Self::Write | Self::Simple => false,
        }
    }

    /// Whether the store knows of those who ask and have to wait, and is told when they wait no longer.
    pub const fn is_announced(self) -> bool {
        match self {
            Self::Fair | Self::Write => true,
            Self::Mutex | Self::Fenced | Self::Read | Self::Simple => false,
        }
    }

    /// Whether it takes more than a store can be told command by command.
    pub const fn needs_scripts(self) -> bool {
        match self {
            Self::Fair | Self::Read | Self::Write => true,
            Self::Mutex | Self::Fenced | Self::Simple => false,
        }
    }

    /// The other side of a lock that has two.
    pub const fn other_side(self) -> Option<Self> {
        match self {
            Self::Read => Some(Self::Write),
            Self::Write => Some(Self::Read),
            Self::Mutex | Self::Fenced | Self::Fair | Self::Simple => None,
        }
    }

    /// Nobody sleeps longer than this without asking again: a message may be lost, and there may be none.
    pub const fn longest_sleep(self) -> Duration {
        match self {
            Self::Mutex | Self::Fenced | Self::Read | Self::Write => Duration::from_secs(2),
            // Asking is also how it stays in the line.
            Self::Fair => Duration::from_secs(3),
            // Other libraries tell nobody when they give it back.
            Self::Simple => Duration::from_millis(100),
        }
    }

    /// Nor does a poller, however patient it wants to be, where the store believes for a while only that it is there.
    pub const fn longest_poll(self) -> Duration {
        if self.is_announced() {
            return self.longest_sleep();
        }
        Duration::from_secs(86_400)
    }

    /// Whether one hold keeps all others out. Behind a hold of our own nobody then needs to ask the
    /// store.
    pub const fn is_exclusive(self) -> bool {
        match self {
            Self::Mutex | Self::Fenced | Self::Fair | Self::Write | Self::Simple => true,
            Self::Read => false,
        }
    }

    /// Whether a hold may go from one waiter of a client to the next without the store having a say.
    pub const fn may_be_handed_on(self) -> bool {
        match self {
            Self::Mutex | Self::Simple => true,
            // Each has a token of its own, which the store gives; or it goes to the first in the store's line; or readers
            // have their turn.
            Self::Fenced | Self::Fair | Self::Read | Self::Write => false,
        }
    }

    /// Whether the store may give it to the next waiter of a client in the same breath.
    pub const fn may_be_passed(self) -> bool {
        match self {
            Self::Fair | Self::Read | Self::Write => false,
            Self::Mutex | Self::Fenced | Self::Simple => true,
        }
    }
}

/// The kinds of locks, as a user knows them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LockKind {
    /// [`Client::lock`](crate::Client::lock).
    Plain,
    /// [`Client::fenced_lock`](crate::Client::fenced_lock). On a server a plain lock is taken for one if the name has been a
    /// fenced one's before.
    Fenced,
    /// [`Client::fair_lock`](crate::Client::fair_lock), while somebody waits for it; otherwise it looks like a plain one.
    Fair,
    /// [`Client::rw_lock`](crate::Client::rw_lock), to read.
    Read,
    /// [`Client::rw_lock`](crate::Client::rw_lock), to write. Its writer may read as well.
    Write,
    /// [`Client::simple_lock`](crate::Client::simple_lock).
    Simple,
}

impl From<Kind> for LockKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Mutex => Self::Plain,
            Kind::Fenced => Self::Fenced,
            Kind::Fair => Self::Fair,
            Kind::Read => Self::Read,
            Kind::Write => Self::Write,
            Kind::Simple => Self::Simple,
        }
    }
}
