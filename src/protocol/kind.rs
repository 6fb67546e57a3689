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
    /// Permits that are leased: Redisson's `RPermitExpirableSemaphore`.
    Semaphore,
    /// Permits that are only counted: Redisson's `RSemaphore`.
    Counting,
    /// A count that goes down: Redisson's `RCountDownLatch`.
    Latch,
}

/// What is kept under a name. Kinds of one shape keep each other out; those of different shapes cannot share a name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StateKind {
    /// An owner, and how often it holds the lock.
    Mutex,
    /// Readers, or a writer, and how often each holds the lock.
    ReadWrite,
    /// An owner.
    Simple,
    /// A number, and what is out of it.
    Semaphore,
    /// A number of permits.
    Counter,
    /// A number that goes down.
    Countdown,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Mutex,
        Self::Fenced,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Simple,
        Self::Semaphore,
        Self::Counting,
        Self::Latch,
    ];

    /// What is kept of it.
    pub const fn state_kind(self) -> StateKind {
        match self {
            Self::Mutex | Self::Fenced | Self::Fair => StateKind::Mutex,
            Self::Read | Self::Write => StateKind::ReadWrite,
            Self::Simple => StateKind::Simple,
            Self::Semaphore => StateKind::Semaphore,
            Self::Counting => StateKind::Counter,
            Self::Latch => StateKind::Countdown,
        }
    }

    /// Whether each grant has a token.
    pub const fn is_fenced(self) -> bool {
        match self {
            Self::Fenced => true,
            Self::Mutex | Self::Fair | Self::Read | Self::Write | Self::Simple => false,
            Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Whether the store keeps the line of those who wait, each by itself.
    pub const fn has_server_queue(self) -> bool {
        match self {
            Self::Fair => true,
            Self::Mutex | Self::Fenced | Self::Read | Self::Write => false,
            Self::Simple | Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Whether anybody stands in a line that the store keeps.
    pub const fn may_have_server_queue(self) -> bool {
        match self {
            Self::Fair | Self::Semaphore | Self::Counting => true,
            Self::Mutex | Self::Fenced | Self::Read | Self::Write => false,
            Self::Simple | Self::Latch => false,
        }
    }

    /// Whether the store knows of those who ask for so many and have to wait, and is told when they wait no longer.
    pub const fn registers_waiters(self, permits: u32) -> bool {
        match self {
            Self::Fair | Self::Write => true,
            Self::Mutex | Self::Fenced | Self::Read | Self::Simple | Self::Latch => false,
            // Who wants one may have any that comes.
            Self::Semaphore | Self::Counting => permits > 1,
        }
    }

    /// Whether it takes more than a store can be told command by command.
    pub const fn needs_scripts(self) -> bool {
        match self {
            Self::Fair | Self::Read | Self::Write => true,
            Self::Semaphore | Self::Counting | Self::Latch => true,
            Self::Mutex | Self::Fenced | Self::Simple => false,
        }
    }

    /// Whether it is a number that nobody holds, so that each change of it is one that must not be made twice.
    pub const fn is_ownerless(self) -> bool {
        match self {
            Self::Counting | Self::Latch => true,
            Self::Mutex | Self::Fenced | Self::Fair | Self::Read | Self::Write => false,
            Self::Simple | Self::Semaphore => false,
        }
    }

    /// Whether the store can say if somebody holds it: what is only counted is nobody's.
    pub const fn is_inspectable(self) -> bool {
        !self.is_ownerless()
    }

    /// Whether its holders have permits, each with an id of its own, and are nobody who may come again.
    pub const fn has_permits(self) -> bool {
        match self {
            Self::Semaphore => true,
            Self::Mutex | Self::Fenced | Self::Fair | Self::Read | Self::Write => false,
            Self::Simple | Self::Counting | Self::Latch => false,
        }
    }

    /// Whether it can be one lock on most of several servers, which know nothing of each other: no line, no number that all
    /// would have to agree upon.
    pub const fn supports_quorum(self) -> bool {
        match self {
            Self::Mutex | Self::Simple => true,
            Self::Fenced | Self::Fair | Self::Read | Self::Write => false,
            Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Which of two, among those that keep each other out, does for both: who writes may read; a token is more than none; and
    /// who gives a fair lock back tells the first in its line.
    pub const fn strength(self) -> u8 {
        match self {
            Self::Fenced => 2,
            Self::Fair | Self::Write => 1,
            Self::Mutex | Self::Read | Self::Simple => 0,
            // These keep nobody out.
            Self::Semaphore | Self::Counting | Self::Latch => 0,
        }
    }

    /// Its place in the order in which everybody takes several of one name. Between programs: a number that is given stays.
    pub const fn rank(self) -> u8 {
        match self {
            Self::Mutex => 0,
            Self::Fenced => 1,
            Self::Fair => 2,
            Self::Read => 3,
            Self::Write => 4,
            Self::Simple => 5,
            Self::Semaphore => 6,
            Self::Counting => 7,
            Self::Latch => 8,
        }
    }

    /// The other side of a lock that has two.
    pub const fn other_side(self) -> Option<Self> {
        match self {
            Self::Read => Some(Self::Write),
            Self::Write => Some(Self::Read),
            Self::Mutex | Self::Fenced | Self::Fair | Self::Simple => None,
            Self::Semaphore | Self::Counting | Self::Latch => None,
        }
    }

    /// Nobody sleeps longer than this without asking again: a message may be lost, and there may be none.
    pub const fn longest_sleep(self) -> Duration {
        match self {
            Self::Mutex | Self::Fenced | Self::Read | Self::Write => Duration::from_secs(2),
            Self::Semaphore | Self::Counting | Self::Latch => Duration::from_secs(2),
            // Asking is also how it stays in the line.
            Self::Fair => Duration::from_secs(3),
            // Other libraries tell nobody when they give it back.
            Self::Simple => Duration::from_millis(100),
        }
    }

    /// Nor does a poller, however patient it wants to be, where the store believes for a while only that it is there.
    pub const fn longest_poll(self) -> Duration {
        match self {
            Self::Fair | Self::Write | Self::Semaphore | Self::Counting => self.longest_sleep(),
            Self::Mutex | Self::Fenced | Self::Read => Duration::from_secs(86_400),
            Self::Simple | Self::Latch => Duration::from_secs(86_400),
        }
    }

    /// Whether one hold keeps all others out. Behind a hold of our own nobody then needs to ask the
    /// store.
    pub const fn is_exclusive(self) -> bool {
        match self {
            Self::Mutex | Self::Fenced | Self::Fair | Self::Write | Self::Simple => true,
            Self::Read | Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Whether a hold may go from one waiter of a client to the next without the store having a say.
    pub const fn supports_local_handoff(self) -> bool {
        match self {
            Self::Mutex | Self::Simple => true,
            // Each has a token of its own, which the store gives; or it goes to the first in the store's line; or readers
            // have their turn; or each is another permit.
            Self::Fenced | Self::Fair | Self::Read | Self::Write => false,
            Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Whether the store may give it to the next waiter of a client in the same breath.
    pub const fn supports_transfer(self) -> bool {
        match self {
            Self::Fair | Self::Read | Self::Write => false,
            Self::Semaphore | Self::Counting | Self::Latch => false,
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
    /// [`Client::semaphore`](crate::Client::semaphore).
    Semaphore,
}

impl LockKind {
    /// As a user knows it, if it is a lock.
    pub(crate) const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Mutex => Some(Self::Plain),
            Kind::Fenced => Some(Self::Fenced),
            Kind::Fair => Some(Self::Fair),
            Kind::Read => Some(Self::Read),
            Kind::Write => Some(Self::Write),
            Kind::Simple => Some(Self::Simple),
            Kind::Semaphore => Some(Self::Semaphore),
            Kind::Counting | Kind::Latch => None,
        }
    }
}
