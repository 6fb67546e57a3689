//! The whole vocabulary between a client and a store: a [`Request`] goes in, a [`Reply`] comes out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One call on one primitive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// What the users call it, without any prefix.
    pub name: Arc<str>,
    /// Which primitive lives under that name.
    pub kind: Kind,
    /// What to do with it.
    pub action: Action,
}

/// The primitives a store knows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// The plain, reentrant lock: Redisson's `RLock`.
    Mutex,
}

/// What a request asks for.
///
/// Counts are absolute and go one way: an acquire only raises, a release only lowers, so that sending
/// either twice changes nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Hold the lock `count` times. At the owner's first attempt it must be free; later ones are
    /// re-entries, and the owner must hold it already.
    Acquire {
        /// Who asks.
        owner: OwnerId,
        /// Numbers this owner's acquires, so that [`Action::Undo`] can name the one it takes back.
        attempt: u32,
        /// How often the owner holds it afterwards.
        count: u32,
        /// How long the hold lasts unless it is renewed; never shortens what is there.
        lease: Duration,
    },
    /// Take the lock from whoever holds it.
    ForceRelease,
    /// Say who holds it.
    Inspect,
    /// Give the lock back and, if nobody but this client listens for it, take it again for another
    /// owner in the same breath.
    Pass {
        /// Who gives it back.
        from: OwnerId,
        /// Who gets it, with a count of one and as its attempt number one.
        to: OwnerId,
        /// The new hold's lease.
        lease: Duration,
        /// How many of the listeners are this client itself.
        own_listeners: u32,
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
    /// Take back an acquire whose outcome nobody knows: lower the count to `left`, and leave a mark
    /// that refuses it if it still comes.
    Undo {
        /// Whose acquire.
        owner: OwnerId,
        /// Which of its acquires.
        attempt: u32,
        /// The count before it.
        left: u32,
    },
}

/// What a store answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// Somebody else holds it, for this much longer; `None` if it has no end.
    Busy {
        /// What is left of the holder's lease.
        ttl: Option<Duration>,
    },
    /// Whether [`Action::ForceRelease`] found anything to take.
    Forced(bool),
    /// The owner holds the lock nowhere, and nor does anyone else.
    Gone,
    /// It is the owner's now.
    Granted,
    /// Who holds it, if anyone.
    Inspected(Option<Holding>),
    /// A release that left holds standing.
    Kept,
    /// Nothing to undo; the request will be refused if it still comes.
    Marked,
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
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holding {
    /// The owners, in the form the store keeps them, and how often each holds it.
    pub owners: Vec<(String, u64)>,
    /// What is left of the lease; `None` if it has no end.
    pub ttl: Option<Duration>,
}

/// An owner as it stands in the store: `<client uuid>:<number>`, Redisson's form.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct OwnerId {
    client: Arc<str>,
    number: i64,
}

impl OwnerId {
    /// The `number`-th owner of the client with this uuid.
    pub const fn new(client: Arc<str>, number: i64) -> Self {
        Self { client, number }
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
