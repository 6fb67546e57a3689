//! The primitives, and the properties in which they differ for waiters and holders.
//!
//! The behaviour of a primitive is in its `apply` and its scripts. The properties here are all that
//! the rest of the code may know of it; a new kind has to answer each of them.

use std::time::Duration;

/// The primitives a store knows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// The plain, reentrant lock: Redisson's `RLock`.
    Mutex,
    /// The plain lock with a token for each grant: Redisson's `RFencedLock`.
    Fenced,
    /// The plain lock, first come, first served: Redisson's `RFairLock`.
    Fair,
    /// The reader's side of the read/write lock: Redisson's `RReadWriteLock`.
    Read,
    /// The writer's side of the read/write lock.
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

/// The form of the state that a store keeps under a name. Kinds with the same form exclude each
/// other; kinds with different forms cannot share a name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StateKind {
    /// An owner and its hold count.
    Mutex,
    /// Readers, or a writer, with a hold count each.
    ReadWrite,
    /// An owner without a count.
    Simple,
    /// A number of permits, and the permits that are out.
    Semaphore,
    /// A number of permits.
    Counter,
    /// A number that goes down.
    Countdown,
}

impl Kind {
    /// All kinds.
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

    /// Returns the form of its state.
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

    /// Reports whether each grant has a token.
    pub const fn is_fenced(self) -> bool {
        match self {
            Self::Fenced => true,
            Self::Mutex | Self::Fair | Self::Read | Self::Write | Self::Simple => false,
            Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Reports whether the store keeps a queue with an entry for every waiter: fair locks only.
    pub const fn has_server_queue(self) -> bool {
        match self {
            Self::Fair => true,
            Self::Mutex | Self::Fenced | Self::Read | Self::Write => false,
            Self::Simple | Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Reports whether some waiters have an entry in a queue that the store keeps.
    pub const fn may_have_server_queue(self) -> bool {
        match self {
            Self::Fair | Self::Semaphore | Self::Counting => true,
            Self::Mutex | Self::Fenced | Self::Read | Self::Write => false,
            Self::Simple | Self::Latch => false,
        }
    }

    /// Reports whether the store registers waiters for this many permits, and has to be notified
    /// when they stop waiting: those of fair locks, writers, and waiters for several permits at once.
    pub const fn registers_waiters(self, permits: u32) -> bool {
        match self {
            Self::Fair | Self::Write => true,
            Self::Mutex | Self::Fenced | Self::Read | Self::Simple | Self::Latch => false,
            // A waiter for one permit can use any permit that becomes free.
            Self::Semaphore | Self::Counting => permits > 1,
        }
    }

    /// Reports whether it needs scripts: single commands of a store cannot express it.
    pub const fn needs_scripts(self) -> bool {
        match self {
            Self::Fair | Self::Read | Self::Write => true,
            Self::Semaphore | Self::Counting | Self::Latch => true,
            Self::Mutex | Self::Fenced | Self::Simple => false,
        }
    }

    /// Reports whether it is a counter without owners, so that no change of it may be applied
    /// twice.
    pub const fn is_ownerless(self) -> bool {
        match self {
            Self::Counting | Self::Latch => true,
            Self::Mutex | Self::Fenced | Self::Fair | Self::Read | Self::Write => false,
            Self::Simple | Self::Semaphore => false,
        }
    }

    /// Reports whether the store can tell if it is held: a counter has no holder.
    pub const fn is_inspectable(self) -> bool {
        !self.is_ownerless()
    }

    /// Reports whether its holders have permits, each with an id of its own, and cannot reenter.
    pub const fn has_permits(self) -> bool {
        match self {
            Self::Semaphore => true,
            Self::Mutex | Self::Fenced | Self::Fair | Self::Read | Self::Write => false,
            Self::Simple | Self::Counting | Self::Latch => false,
        }
    }

    /// Reports whether it can be one lock on a majority of servers that know nothing of each other:
    /// they share no queue and no number that all of them would have to agree upon.
    pub const fn supports_quorum(self) -> bool {
        match self {
            Self::Mutex | Self::Simple => true,
            Self::Fenced | Self::Fair | Self::Read | Self::Write => false,
            Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Orders kinds that exclude each other: a hold of the stronger of two kinds serves as both. A
    /// writer may read, a grant with a token is more than one without, and the release of a fair
    /// lock notifies the head of its queue.
    pub const fn strength(self) -> u8 {
        match self {
            Self::Fenced => 2,
            Self::Fair | Self::Write => 1,
            Self::Mutex | Self::Read | Self::Simple => 0,
            // A hold of these kinds excludes no other hold.
            Self::Semaphore | Self::Counting | Self::Latch => 0,
        }
    }

    /// Returns its place in the order in which every client acquires several primitives of one
    /// name. Programs of different versions share this order: a number that has been assigned never
    /// changes.
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

    /// Returns the other side of a lock that has two.
    pub const fn other_side(self) -> Option<Self> {
        match self {
            Self::Read => Some(Self::Write),
            Self::Write => Some(Self::Read),
            Self::Mutex | Self::Fenced | Self::Fair | Self::Simple => None,
            Self::Semaphore | Self::Counting | Self::Latch => None,
        }
    }

    /// Returns the upper bound of a waiter's sleep between two requests: a notification may be
    /// lost, and some locks send none.
    pub const fn longest_sleep(self) -> Duration {
        match self {
            Self::Mutex | Self::Fenced | Self::Read | Self::Write => Duration::from_secs(2),
            Self::Semaphore | Self::Counting | Self::Latch => Duration::from_secs(2),
            // A request also keeps the waiter's place in the queue.
            Self::Fair => Duration::from_secs(3),
            // Other libraries send no notification when they release it.
            Self::Simple => Duration::from_millis(100),
        }
    }

    /// Returns the upper bound of a pause in poll mode, however long a pause is configured: a store
    /// that registers waiters forgets a waiter that sends no request for a while.
    pub const fn longest_poll(self) -> Duration {
        match self {
            Self::Fair | Self::Write | Self::Semaphore | Self::Counting => self.longest_sleep(),
            Self::Mutex | Self::Fenced | Self::Read => Duration::from_secs(86_400),
            Self::Simple | Self::Latch => Duration::from_secs(86_400),
        }
    }

    /// Reports whether one hold excludes all others. A waiter behind a hold of its own client then
    /// needs no request to the store.
    pub const fn is_exclusive(self) -> bool {
        match self {
            Self::Mutex | Self::Fenced | Self::Fair | Self::Write | Self::Simple => true,
            Self::Read | Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Reports whether a hold may pass from one waiter of a client to the next without a request to
    /// the store.
    pub const fn supports_local_handoff(self) -> bool {
        match self {
            Self::Mutex | Self::Simple => true,
            // Each grant has a token of its own, which the store assigns; or the lock goes to the
            // head of the store's queue; or readers have their turn; or each grant is another
            // permit.
            Self::Fenced | Self::Fair | Self::Read | Self::Write => false,
            Self::Semaphore | Self::Counting | Self::Latch => false,
        }
    }

    /// Reports whether the store may release it and grant it to the next waiter of the same client
    /// in one request.
    pub const fn supports_transfer(self) -> bool {
        match self {
            Self::Fair | Self::Read | Self::Write => false,
            Self::Semaphore | Self::Counting | Self::Latch => false,
            Self::Mutex | Self::Fenced | Self::Simple => true,
        }
    }
}

/// The kinds of locks in the public API.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LockKind {
    /// [`Client::lock`](crate::Client::lock).
    Plain,
    /// [`Client::fenced_lock`](crate::Client::fenced_lock). On a server a plain lock is reported as
    /// fenced if a fenced lock had the name before.
    Fenced,
    /// [`Client::fair_lock`](crate::Client::fair_lock), while it has waiters; otherwise it looks
    /// like a plain lock.
    Fair,
    /// [`Client::rw_lock`](crate::Client::rw_lock), held to read.
    Read,
    /// [`Client::rw_lock`](crate::Client::rw_lock), held to write. Its writer may read as well.
    Write,
    /// [`Client::simple_lock`](crate::Client::simple_lock).
    Simple,
    /// [`Client::semaphore`](crate::Client::semaphore).
    Semaphore,
}

impl LockKind {
    /// Returns the public kind of a primitive, if the primitive is a lock.
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
