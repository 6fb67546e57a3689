//! Distributed locks that tell you when you lose them, on the same Redis and in the same format as
//! Java's Redisson.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
//! # async fn send_invoice(_: u32) {}
//! let client = distlock::Client::connect("memory:").await?;      // or redis://host/
//! let guard = client.lock("invoice:42").acquire().await?;
//! guard.while_held(send_invoice(42)).await?;                     // dropped at its next await if the lock is lost
//! guard.release().await?;                                        // or just drop it
//! # Ok(()) }
//! ```
//!
//! # Where to begin
//!
//! - [`Client`] connects to a store; [`Client::lock`] names a lock ([`Client::fair_lock`],
//!   [`Client::fenced_lock`], [`Client::rw_lock`] and [`Client::simple_lock`] one of another kind); [`Lock::acquire`], [`Lock::try_acquire`],
//!   [`Lock::acquire_timeout`] and [`Lock::run`] take it. [`MultiLock`] takes several, all or none; [`QuorumLock`] one
//!   on most of several servers.
//! - [`Guard`] is proof that it is held, and says when it is not any more: [`Held::check`],
//!   [`Held::lost`], [`Guard::while_held`].
//! - [`Client::semaphore`] names permits that are leased, [`Client::counting_semaphore`] such that are only counted;
//!   [`Client::latch`] a count that others count down, for those who wait until it is zero.
//! - [`Owner`] lets somebody hold a lock more than once.
//! - [`Admin`] shows who holds what, [`Watch`] who takes and gives back what.
//! - `blocking` has the same words without `async`.
//!
//! # What a lock cannot do
//!
//! A lease ends by the clock, and a process can be stopped at any instant, also between the last look
//! at its guard and the next write. So no lock with leases, this one included, keeps two processes from
//! *writing* at the same time under every fault; it keeps two *valid guards* from existing while its
//! store remembers what it granted, and tells the holder as early as can be known. What you write to can refuse the one that
//! comes too late, by the token of a [fenced lock](Client::fenced_lock). `docs/guarantees.md` says exactly what is promised under
//! which faults, and which test shows it.
//!
//! # Layout
//!
//! The files here are the nouns of the API. Beneath them `driver` runs, `protocol` decides, and
//! `engine` remembers; arrows point down only.

#![cfg_attr(
    not(all(feature = "redis", feature = "sqlite", target_os = "linux")),
    allow(
        dead_code,
        reason = "what a store behind a network needs has no use without one"
    )
)]

#[macro_use]
mod planted;

mod admin;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod client;
mod connect;
mod counting_semaphore;
mod driver;
mod engine;
mod error;
mod guard;
mod held;
mod latch;
mod lock;
mod multi_guard;
mod multi_lock;
mod options;
mod owner;
mod protocol;
mod quorum_guard;
mod quorum_held;
mod quorum_lock;
mod run_error;
mod rw_lock;
mod semaphore;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod watch;

pub use admin::{Admin, Holder, LockInfo};
pub use builder::ClientBuilder;
pub use client::Client;
pub use counting_semaphore::CountingSemaphore;
pub use driver::lookup::ListProgress;
pub use engine::{Diagnostic, Severity};
pub use error::{Error, Lost, LostReason, Risk, TlsProblem};
pub use guard::Guard;
pub use held::{Held, LostSignal};
pub use latch::Latch;
pub use lock::{Fair, Fenced, Lock, Plain, Simple};
pub use multi_guard::{FirstLost, MultiGuard, MultiHeld};
pub use multi_lock::{Member, MultiLock};
pub use options::{Backoff, Durability, Lease, Wait};
pub use owner::Owner;
pub use protocol::permit::ParsePermitIdError;
pub use protocol::release_on::ReleaseOn;
pub use protocol::{FencingToken, LockKind, PermitId};
pub use quorum_guard::QuorumGuard;
pub use quorum_held::{MajorityLost, QuorumHeld};
pub use quorum_lock::QuorumLock;
pub use run_error::RunError;
pub use rw_lock::{Read, RwLock, Write};
pub use semaphore::{Permit, PermitCount, Semaphore};
pub use watch::{Change, Event, Watch};

/// The parts below the API, for this project's own model tests. Nothing in it is stable.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    /// What remembers.
    pub mod engine {
        pub use crate::engine::*;
    }
    /// What decides.
    pub mod protocol {
        pub use crate::protocol::*;
    }
}

/// The README's examples are tests.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// And those of the page on fencing.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../docs/fencing.md")]
struct Fencing;

/// And those of the pages on sharing a lock with others.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/redisson.md")]
struct Redisson;

#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/simple-lock.md")]
struct SimpleLock;
