//! Distributed locks that tell the holder when a lock is lost, in the Redis data format of Java's Redisson.
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
//! - [`Client`] connects to a store. [`Client::lock`] names a lock; [`Client::fair_lock`], [`Client::fenced_lock`],
//!   [`Client::rw_lock`] and [`Client::simple_lock`] name a lock of another kind. [`Lock::acquire`],
//!   [`Lock::try_acquire`], [`Lock::acquire_timeout`] and [`Lock::run`] acquire it. [`MultiLock`] acquires several
//!   locks, all or none; [`QuorumLock`] acquires one lock on most of several servers.
//! - [`Guard`] is proof that a lock is held, and reports when the lock is lost: [`Held::check`], [`Held::lost`],
//!   [`Guard::while_held`].
//! - [`Client::semaphore`] names a semaphore whose permits have leases; [`Client::counting_semaphore`] names one whose
//!   permits are only counted. [`Client::latch`] names a count that clients count down while other clients wait for
//!   zero.
//! - [`Owner`] makes a lock reentrant: the same owner can hold it more than once.
//! - [`Admin`] shows the locks and their holders, [`Watch`] every acquire and release as it happens.
//! - `blocking` has the same API without `async`.
//!
//! # What a lock cannot do
//!
//! A lease ends by the clock, and a process can be stopped at any instant, also between the last check of its guard and
//! the next write. So no lock with leases, this one included, keeps two processes from *writing* at the same time under
//! every fault. It keeps two *valid guards* from existing as long as its store remembers what it granted, and notifies
//! the holder of a loss as early as possible. With a [fenced lock](Client::fenced_lock) the resource that you write to
//! can compare tokens and reject a write that comes too late. `docs/guarantees.md` says exactly what is promised under
//! which faults, and `docs/guarantees-tests.md` which test shows it.
//!
//! # Layout
//!
//! The files here are the public types. Below them, `driver` runs tasks, timers and retries, `protocol` holds the pure
//! state machines, and `engine` has one adapter per store. Dependencies point downwards only.

#![cfg_attr(
    not(all(feature = "redis", feature = "sqlite", target_os = "linux")),
    allow(
        dead_code,
        reason = "items for networked stores are unused without such a store"
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

/// The layers below the API, for this project's own model tests. Nothing in this module is stable.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    /// The store adapters.
    pub mod engine {
        pub use crate::engine::*;
    }
    /// The pure state machines.
    pub mod protocol {
        pub use crate::protocol::*;
    }
}

/// Runs the README's examples as tests.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Runs the examples of the page on using the library.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/library.md")]
struct UsingTheLibrary;

/// The examples of the tutorial are tests as well.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/tutorial.md")]
struct Tutorial;

/// Compiles the example of the page on guarantees.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/guarantees.md")]
struct Guarantees;

/// Runs the examples of the page on fencing.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../docs/fencing.md")]
struct Fencing;

/// Runs the examples of the page on sharing a lock with Redisson.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/redisson.md")]
struct Redisson;

/// Runs the examples of the page on what distlock and Redisson store and send.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/redisson-wire.md")]
struct RedissonWire;

/// Runs the examples of the page on sharing a lock with other libraries.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/simple-lock.md")]
struct SimpleLock;

/// Runs the example of the page that helps to choose a kind of lock.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/which-lock.md")]
struct WhichLock;

/// Runs the example of the page that helps to choose a store.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/which-store.md")]
struct WhichStore;

/// Runs the examples of the page on events.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/observability.md")]
struct Observability;

/// Runs the examples of the tutorial in Chinese.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/zh/tutorial.md")]
struct ChineseTutorial;

/// Runs the examples of the README in Chinese.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.zh-CN.md")]
struct ChineseReadme;
