//! What is decided: who gets a lock, when to ask again, when a hold is over.
//!
//! Everything here is pure. There is no clock, no socket and no runtime below this line: `now` is an
//! argument and the answer is a value, so that a million histories can be tried in a minute.
//!
//! - [`request`] is the whole vocabulary between a client and a store, [`kind`] what sets primitives apart,
//!   [`owner`] who holds, [`token`] which grant it was, [`holds_end_with`] with what a hold ends beside its lease;
//! - [`state`], [`mutex`], [`fair`] (with its [`line`]), [`rw`] (with its [`writers`]) and [`simple`] decide *at* the store: one `apply` for each
//!   primitive; [`change`] says what it did to whom;
//! - [`acquire`] and [`lease`] decide *here*: try, wait and retry before a grant; renew, at risk and
//!   lost after it; [`ledger`] what a watch tells.

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
pub mod fair;
pub mod holds_end_with;
pub mod jitter;
pub mod kind;
pub mod lease;
pub mod ledger;
pub mod line;
pub mod marks;
pub mod moment;
pub mod mutex;
pub mod owner;
pub mod request;
pub mod rw;
pub mod simple;
pub mod state;
pub mod token;
pub mod writers;

pub use kind::{Kind, LockKind, Shape};
pub use moment::Moment;
pub use owner::{ClientId, OwnerId};
pub use request::{Action, Channel, Entry, Holding, Reply, Request, Subject};
pub use token::FencingToken;
