//! The whole vocabulary between a client and a store: a [`Request`] goes in, a [`Reply`] comes out.

use std::sync::Arc;
use std::time::Duration;

use super::lease::LostReason;
use super::semaphore::{PermitRequest, Permits, SemaphoreOp};
use super::{CounterOp, FencingToken, IdempotencyKey, Kind, OwnerId};

/// Upper bound in bytes: more than any name needs, little enough not to harm a store.
const MAX_NAME_LEN: usize = 64 * 1024;

/// One call on one primitive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// The primitive that the request is about.
    pub subject: Subject,
    /// The operation on it.
    pub action: Action,
}

/// One primitive under one name: the thing that is acquired, held and waited for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Subject {
    /// Which primitive.
    pub kind: Kind,
    /// The name that users give it, without any prefix.
    pub name: Arc<str>,
}

/// A channel on which a store announces that something has become free. Primitives that share a
/// channel wake each other's waiters.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Channel {
    /// The channel of the lock with this name.
    Lock(Arc<str>),
    /// The channel of the read/write lock with this name.
    ReadWrite(Arc<str>),
    /// The channel of the semaphore with this name.
    Semaphore(Arc<str>),
    /// The channel of the latch with this name.
    Latch(Arc<str>),
    /// The channel of one waiter in a fair lock's queue.
    Waiter(Arc<str>, OwnerId),
}

impl Channel {
    /// Returns the name of the primitive that the channel belongs to.
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

/// The operation that a request asks for.
///
/// Counts are absolute and go one way: an acquire only raises, a release only lowers, so that sending
/// either twice changes nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Acquires the lock, for the first time or once more.
    Acquire {
        /// The owner that the lock is requested for.
        owner: OwnerId,
        /// Whether the owner holds it already.
        entry: Entry,
        /// How long the hold lasts unless it is renewed; never shortens an existing lease.
        lease: Duration,
        /// The greatest token the client has seen, for kinds whose grants have tokens: a new token
        /// is greater.
        min_token: Option<FencingToken>,
        /// How long the store keeps the waiter registered unless it sends another request, for
        /// kinds whose waiters are registered; `None` if it does not wait.
        waiter_ttl: Option<Duration>,
        /// The same local owner's hold on the other side of a read/write lock: a writer may read,
        /// and the only reader may write.
        other_side: Option<OwnerId>,
        /// Whether a reader bypasses waiting writers: it has waited for them long enough.
        bypass_writers: bool,
        /// The permits that are requested, where a primitive has many.
        permits: PermitRequest,
    },
    /// Changes an ownerless counter, once.
    CounterOp {
        /// The key by which the store recognizes a repeated request.
        key: IdempotencyKey,
        /// The change.
        change: CounterOp,
    },
    /// Reports the number of permits, or changes it.
    SemaphoreOp(SemaphoreOp),
    /// Removes the lock from its holder by force.
    ForceRelease,
    /// Reports the holders.
    Inspect,
    /// Releases the lock and, if no other client is subscribed to its channel, grants it to another
    /// owner in the same step.
    Transfer {
        /// The owner that releases it.
        from: OwnerId,
        /// The owner that is granted it, as its first entry.
        to: OwnerId,
        /// The new hold's lease.
        lease: Duration,
        /// How many of the channel's subscribers belong to this client.
        own_subscribers: u32,
        /// The greatest token the client has seen, as for an acquire.
        min_token: Option<FencingToken>,
    },
    /// Lowers the owner's count to at most `left`; 0 removes every trace of the owner.
    Release {
        /// The owner that releases it.
        owner: OwnerId,
        /// How often the owner still holds it afterwards.
        left: u32,
    },
    /// Makes the hold last this long from now, if it would end sooner.
    Renew {
        /// The owner of the hold.
        owner: OwnerId,
        /// The lease, counted from now.
        lease: Duration,
    },
    /// Takes back an acquire whose outcome is unknown: lowers the count to what it would be without
    /// it, and leaves a tombstone that refuses it if it still arrives.
    Undo {
        /// The owner of the acquire.
        owner: OwnerId,
        /// Identifies the acquire; the count is the one to be left with.
        entry: Entry,
    },
}

/// Identifies one of an owner's acquires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Entry {
    /// The owner's first entry: the lock must be free.
    Fresh,
    /// An entry into the owner's own hold. That hold must exist: a grant would otherwise make it
    /// up.
    Reentry {
        /// Tells this owner's acquires apart; the first entry is number 1.
        attempt: u32,
        /// How often the owner then holds the lock.
        count: u32,
    },
}

/// The reply of a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// The value of an ownerless counter before and after the request; `None` where there is no
    /// counter.
    Altered {
        /// The value when the request arrived.
        before: Option<i64>,
        /// The value when the request was done.
        after: Option<i64>,
    },
    /// Another owner holds it, for this much longer; `None` if its lease has no end, or if other
    /// waiters are first.
    Busy {
        /// The time that is left of the holder's lease.
        ttl: Option<Duration>,
    },
    /// Whether [`Action::ForceRelease`] found a hold to remove.
    Forced(bool),
    /// Neither the owner nor anyone else holds the lock.
    Gone,
    /// The owner holds it now.
    Granted {
        /// The token of the grant, where grants have one; a repeated request gets the same token.
        token: Option<FencingToken>,
    },
    /// The number of permits, if it was ever set or some permits are out, and whether the request
    /// has changed it.
    Counted {
        /// Whether the change was made.
        done: bool,
        /// The permits that there are now.
        permits: Option<Permits>,
    },
    /// The holders, if there are any.
    Inspected(Option<LockSnapshot>),
    /// The hold goes on: the release left some of its entries.
    Kept,
    /// There was nothing to undo; a tombstone refuses the request if it still arrives.
    Tombstoned,
    /// No trace of the owner is left; the notification reached this many subscribers, this client
    /// included.
    Released {
        /// The number of subscribers that received it.
        subscribers: u32,
    },
    /// The lease starts anew.
    Renewed,
    /// The owner does not hold the lock; another owner does.
    Taken,
    /// The request was undone before it arrived.
    Undone,
}

/// The holders of a lock, as a store sees them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LockSnapshot {
    /// Its owners; an owner that both reads and writes appears twice.
    pub owners: Vec<HolderSnapshot>,
    /// The time until it is free; `None` if that has no end.
    pub ttl: Option<Duration>,
    /// The token of the last grant, where grants have one.
    pub token: Option<FencingToken>,
    /// The first hundred waiters, where the store knows them.
    pub waiting: Vec<String>,
    /// Whether one of the owners writes, where others may read.
    pub writes: bool,
    /// The number of permits, where a primitive has many.
    pub permits: Option<Permits>,
}

/// One owner of a lock, as a store sees it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct HolderSnapshot {
    /// The owner's id in the form that the store keeps.
    pub owner: String,
    /// How often it holds the lock.
    pub count: u64,
    /// The time that is left of its own lease; `None` if it has no end.
    pub ttl: Option<Duration>,
}

impl LockSnapshot {
    /// The snapshot of a primitive that exists and has no holder.
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
    /// The reply to [`Action::SemaphoreOp`] on anything that is not a semaphore.
    pub const NOT_A_SEMAPHORE: Self = Self::Counted {
        done: false,
        permits: None,
    };

    /// The reply to [`Action::CounterOp`] on anything that is not an ownerless counter.
    pub const NOT_A_COUNTER: Self = Self::Altered {
        before: None,
        after: None,
    };

    /// Returns why a hold that got this reply has ended; `None` if the reply does not mean that.
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

/// Returns why no primitive can have this name; `None` if the name is valid.
pub const fn validate_name(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("the name is empty")
    } else if name.len() > MAX_NAME_LEN {
        Some("the name is longer than 64 KiB")
    } else {
        None
    }
}

impl Channel {
    /// Returns this channel with its name replaced by the result of `name`.
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
    /// Returns its number among the owner's acquires.
    pub const fn attempt(self) -> u32 {
        match self {
            Self::Fresh => 1,
            Self::Reentry { attempt, .. } => attempt,
        }
    }
}

impl Subject {
    /// Creates a subject from a kind and a name.
    pub fn new(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Self { kind, name }
    }

    /// Returns the channel of its waiters, for kinds whose waiters do not each have a channel of
    /// their own.
    pub fn channel(&self) -> Channel {
        match self.kind {
            // These kinds exclude each other: a name belongs to one of them at a time.
            Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Simple => {
                Channel::Lock(self.name.clone())
            }
            Kind::Read | Kind::Write => Channel::ReadWrite(self.name.clone()),
            // These kinds, too, share one name.
            Kind::Semaphore | Kind::Counting => Channel::Semaphore(self.name.clone()),
            Kind::Latch => Channel::Latch(self.name.clone()),
        }
    }

    /// Creates a request with this action.
    pub fn request(&self, action: Action) -> Request {
        let subject = self.clone();
        Request { subject, action }
    }
}
