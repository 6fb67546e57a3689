//! What is decided: who gets a lock, when to ask again, when a hold is over.
//!
//! Everything here is pure. There is no clock, no socket and no runtime below this line: `now` is an
//! argument and the answer is a value, so that a million histories can be tried in a minute.
//!
//! - [`request`] is the whole vocabulary between a client and a store, [`kind`] what sets primitives apart,
//!   [`owner`] who holds, [`token`] which grant it was, [`release_on`] with what a hold ends beside its lease,
//!   [`moment`] when; [`tombstones`] is for how long a store remembers a request that was undone;
//! - [`state`], [`mutex`], [`fair`] (with its [`store_queue`]), [`rw`] (with its [`writers`]), [`simple`], [`semaphore`] (of
//!   [`permit`]s), and, of
//!   [`number`]s that are nobody's, [`counting`] and [`latch`] (with their [`dedup`]) decide *at* the store: one `apply` for each
//!   primitive; [`change`] says what it did to whom;
//! - [`acquire`] and [`lease`] decide *here*: try, wait and retry before a grant; renew, at risk and
//!   lost after it; [`quorum`] what most of several servers have granted; [`event_diff`] what a watch tells; [`jitter`] keeps them
//!   from all doing it at once.

#![cfg_attr(
    not(feature = "internals"),
    allow(
        unreachable_pub,
        reason = "public for this project's own model tests only"
    )
)]
#![allow(
    clippy::exhaustive_enums,
    reason = "matches on our own vocabulary must break when it grows"
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
