//! The whole vocabulary between a client and a store: a [`Request`] goes in, a [`Reply`] comes out.

use std::sync::Arc;
use std::time::Duration;

use super::lease::LostReason;
use super::semaphore::{PermitRequest, Permits, SemaphoreOp};
use super::{CounterOp, FencingToken, IdempotencyKey, Kind, OwnerId};

/// In bytes: longer than anyone needs, shorter than what would hurt a store.
const MAX_NAME_LEN: usize = 64 * 1024;

/// One call on one primitive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// What it is about.
    pub subject: Subject,
    /// What to do with it.
    pub action: Action,
}

/// One primitive under one name: what is asked for, held and waited for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Subject {
    /// Which primitive.
    pub kind: Kind,
    /// What the users call it, without any prefix.
    pub name: Arc<str>,
}

/// Where one hears that something has become free. Primitives that share a channel wake each other's
/// waiters.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Channel {
    /// Of the lock with this name.
    Lock(Arc<str>),
    /// Of the read/write lock with this name.
    ReadWrite(Arc<str>),
    /// Of the semaphore with this name.
    Semaphore(Arc<str>),
    /// Of the latch with this name.
    Latch(Arc<str>),
    /// Of one who waits in a fair lock's line.
    Waiter(Arc<str>, OwnerId),
}

impl Channel {
    /// Whose it is.
    pub fn name(&self) -> &str {
        match self {
            Self::Lock(name)
            | Self::ReadWrite(name)
            | Self::Semaphore(name)
            | Self::Latch(name)
            | Self::Waiter(name, _) => name,
        }
    }
}

/// What a request asks for.
///
/// Counts are absolute and go one way: an acquire only raises, a release only lowers, so that sending
/// either twice changes nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Hold the lock: for the first time, or once more.
    Acquire {
        /// Who asks.
        owner: OwnerId,
        /// Whether the owner holds it already.
        entry: Entry,
        /// How long the hold lasts unless it is renewed; never shortens what is there.
        lease: Duration,
        /// The greatest token the client has seen, where grants have one: a new one is greater.
        seen: Option<FencingToken>,
        /// How long it is believed to wait unless it asks again, where the store knows who waits; none if it does not
        /// wait.
        waits: Option<Duration>,
        /// The same user's hold on the other side of a read/write lock: a writer may read, and the only reader may write.
        upgrade_from: Option<OwnerId>,
        /// Whether a reader goes past writers that wait: it has waited for them long enough.
        bypass_writers: bool,
        /// How many of them, where there are many.
        permits: PermitRequest,
    },
    /// Change a number that is nobody's, once.
    CounterOp {
        /// Which request it is.
        key: IdempotencyKey,
        /// What is to become of the number.
        change: CounterOp,
    },
    /// Say how many permits there are, or change that.
    SemaphoreOp(SemaphoreOp),
    /// Take the lock from whoever holds it.
    ForceRelease,
    /// Say who holds it.
    Inspect,
    /// Give the lock back and, if nobody but this client listens for it, take it again for another
    /// owner in the same breath.
    Transfer {
        /// Who gives it back.
        from: OwnerId,
        /// Who gets it, as its first entry.
        to: OwnerId,
        /// The new hold's lease.
        lease: Duration,
        /// How many of the listeners are this client itself.
        own_listeners: u32,
        /// As for an acquire.
        seen: Option<FencingToken>,
    },
    /// Hold the lock `left` times at most; 0 removes every trace of the owner.
    Release {
        /// Who gives it back.
        owner: OwnerId,
        /// How often the owner holds it afterwards.
        left: u32,
    },
    /// Make the hold last this long from now, if it would end sooner.
    Renew {
        /// Whose hold.
        owner: OwnerId,
        /// How long.
        lease: Duration,
    },
    /// Take back an acquire whose outcome nobody knows: lower the count to what it would be without
    /// it, and leave a mark that refuses it if it still comes.
    Undo {
        /// Whose acquire.
        owner: OwnerId,
        /// Which of its acquires; the count is the one to be left with.
        entry: Entry,
    },
}

/// Which of an owner's acquires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Entry {
    /// From zero: the lock must be free.
    Fresh,
    /// Into a hold of its own, which must be there: granting it would otherwise make that up.
    Reentry {
        /// Tells this owner's acquires apart; the first entry is number 1.
        attempt: u32,
        /// How often the owner holds the lock.
        count: u32,
    },
}

/// What a store answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// What the number was that is nobody's, and what it is since; none where there is none.
    Altered {
        /// When the request came.
        before: Option<i64>,
        /// When it was done.
        after: Option<i64>,
    },
    /// Somebody else holds it, for this much longer; `None` if it has no end, or others are first.
    Busy {
        /// What is left of the holder's lease.
        ttl: Option<Duration>,
    },
    /// Whether [`Action::ForceRelease`] found anything to take.
    Forced(bool),
    /// The owner holds the lock nowhere, and nor does anyone else.
    Gone,
    /// It is the owner's now.
    Granted {
        /// Which grant it was, where grants have one; a repetition is told the same.
        token: Option<FencingToken>,
    },
    /// How many permits there are, if anybody has said so or some are out, and whether what was asked has changed them.
    Counted {
        /// Whether it was done.
        done: bool,
        /// What there is now.
        permits: Option<Permits>,
    },
    /// Who holds it, if anyone.
    Inspected(Option<LockSnapshot>),
    /// A release that left holds standing.
    Kept,
    /// Nothing to undo; the request will be refused if it still comes.
    Tombstoned,
    /// No trace of the owner is left; this many listened to the news, ourselves included.
    Released {
        /// How many heard it.
        listeners: u32,
    },
    /// The lease runs anew.
    Renewed,
    /// The owner does not hold the lock; somebody else does.
    Taken,
    /// The request was undone before it came.
    Undone,
}

/// Who holds a lock, as a store sees it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LockSnapshot {
    /// Its owners; the same one twice, if it reads and writes.
    pub owners: Vec<HolderSnapshot>,
    /// What is left until it is free; `None` if it has no end.
    pub ttl: Option<Duration>,
    /// The token of the last grant, where they have one.
    pub token: Option<FencingToken>,
    /// Who waits, where the store knows: the first hundred.
    pub waiting: Vec<String>,
    /// Whether one of them writes, where others may read.
    pub writes: bool,
    /// How many permits there are, where there are many.
    pub permits: Option<Permits>,
}

/// One owner of a lock, as a store sees it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct HolderSnapshot {
    /// In the form the store keeps it.
    pub owner: String,
    /// How often it holds the lock.
    pub count: u64,
    /// What is left of its own lease; `None` if it has no end.
    pub ttl: Option<Duration>,
}

impl LockSnapshot {
    /// Of what is there and nobody holds.
    pub const OWNERLESS: Self = Self {
        owners: Vec::new(),
        ttl: None,
        token: None,
        waiting: Vec::new(),
        writes: false,
        permits: None,
    };
}

impl Reply {
    /// Of a lock there are not many.
    pub const NOT_A_SEMAPHORE: Self = Self::Counted {
        done: false,
        permits: None,
    };

    /// Nor is it a number.
    pub const NOT_A_COUNTER: Self = Self::Altered {
        before: None,
        after: None,
    };

    /// Why a hold has ended that got this answer; none if the answer does not mean that.
    pub const fn refusal(&self) -> Option<LostReason> {
        match self {
            Self::Busy { .. } | Self::Taken => Some(LostReason::TakenOver),
            Self::Gone | Self::Undone => Some(LostReason::Removed),
            Self::Altered { .. }
            | Self::Counted { .. }
            | Self::Forced(_)
            | Self::Granted { .. }
            | Self::Inspected(_)
            | Self::Kept
            | Self::Tombstoned
            | Self::Released { .. }
            | Self::Renewed => None,
        }
    }
}

/// Why nothing can have this name; none if it can.
pub const fn validate_name(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > MAX_NAME_LEN {
        Some("it is longer than 64 KiB")
    } else {
        None
    }
}

impl Channel {
    /// The same of another name.
    #[must_use]
    pub fn of(&self, name: impl FnOnce(&Arc<str>) -> Arc<str>) -> Self {
        match self {
            Self::Lock(own) => Self::Lock(name(own)),
            Self::ReadWrite(own) => Self::ReadWrite(name(own)),
            Self::Semaphore(own) => Self::Semaphore(name(own)),
            Self::Latch(own) => Self::Latch(name(own)),
            Self::Waiter(own, owner) => Self::Waiter(name(own), *owner),
        }
    }
}

impl Entry {
    /// Its number among the owner's acquires.
    pub const fn attempt(self) -> u32 {
        match self {
            Self::Fresh => 1,
            Self::Reentry { attempt, .. } => attempt,
        }
    }
}

impl Subject {
    /// A primitive's name.
    pub fn new(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Self { kind, name }
    }

    /// Where its waiters listen, unless each has a channel of its own.
    pub fn channel(&self) -> Channel {
        match self.kind {
            // A name is one of them at a time.
            Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Simple => {
                Channel::Lock(self.name.clone())
            }
            Kind::Read | Kind::Write => Channel::ReadWrite(self.name.clone()),
            // A name is one of these, too.
            Kind::Semaphore | Kind::Counting => Channel::Semaphore(self.name.clone()),
            Kind::Latch => Channel::Latch(self.name.clone()),
        }
    }

    /// Asks something of it.
    pub fn request(&self, action: Action) -> Request {
        let subject = self.clone();
        Request { subject, action }
    }
}
