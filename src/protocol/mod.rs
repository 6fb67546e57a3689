//! The rules: which request gets a lock, when a waiter sends its next request, when a hold is over.
//!
//! Everything here is pure. There is no clock, no socket and no runtime below this line: `now` is
//! an argument and the reply is a value, so that a million histories can be tried in a minute.
//!
//! - Vocabulary: [`request`] is every request and reply between a client and a store, [`kind`] the
//!   differences between the primitives, [`owner`] the identity of a holder, [`token`] the number
//!   of a grant, [`release_on`] what ends a hold apart from its lease, [`moment`] a point in time,
//!   [`tombstones`] the undone requests that a store remembers for a while.
//! - Decisions *at the store*: [`state`] and one `apply` for each primitive in [`mutex`], [`fair`]
//!   (with its [`store_queue`]), [`rw`] (with its [`writers`]), [`simple`], [`semaphore`] (of
//!   [`permit`]s) and, for ownerless counters ([`number`]), [`counting`] and [`latch`] (with their
//!   [`dedup`]). [`change`] says which holds a request ended and began.
//! - Decisions *at the client*: [`acquire`] and [`lease`] try, wait and retry before a grant, and
//!   renew, put at risk and lose a hold after it. [`quorum`] counts the grants of several servers,
//!   [`event_diff`] derives the events of a watch, [`jitter`] spreads clients that would otherwise
//!   act at the same time.

#![cfg_attr(
    not(feature = "internals"),
    allow(
        unreachable_pub,
        reason = "public for the model tests of this project only"
    )
)]
#![allow(
    clippy::exhaustive_enums,
    reason = "a new variant must break every match within this crate"
)]

pub mod acquire;
pub mod change;
pub mod counting;
pub mod dedup;
pub mod event_diff;
pub mod fair;
pub mod jitter;
pub mod kind;
pub mod latch;
pub mod lease;
pub mod moment;
pub mod mutex;
pub mod number;
pub mod owner;
pub mod permit;
pub mod quorum;
pub mod release_on;
pub mod request;
pub mod rw;
pub mod semaphore;
pub mod simple;
pub mod state;
pub mod store_queue;
pub mod token;
pub mod tombstones;
pub mod writers;

pub use dedup::IdempotencyKey;
pub use kind::{Kind, LockKind, StateKind};
pub use moment::Moment;
pub use number::CounterOp;
pub use owner::{ClientId, OwnerId};
pub use permit::PermitId;
pub use request::{Action, Channel, Entry, HolderSnapshot, LockSnapshot, Reply, Request, Subject};
pub use semaphore::{PermitRequest, Permits, SemaphoreOp};
pub use token::FencingToken;
