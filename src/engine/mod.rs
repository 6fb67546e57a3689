//! What remembers: the stores behind one narrow trait.
//!
//! An engine turns a [`Request`] into a [`Reply`], atomically, and passes on the news of a release.
//! It decides nothing else. Engines lean on `protocol/` and on nothing above it.

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

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::protocol::state::WrongKind;
use crate::protocol::{Channel, Kind, LockSnapshot, Moment, Reply, Request, Subject};

pub use self::change_feed::{ChangeFeed, FeedItem};
pub use self::diagnostic::{Diagnostic, Severity};
pub use self::tls_problem::TlsProblem;

pub mod boot;
pub mod change_feed;
mod diagnostic;
pub mod events;
pub mod fork_detector;
mod glob;
mod inspect;
pub mod memory;
mod name_filter;
#[cfg(any(feature = "redis", all(feature = "sqlite", target_os = "linux")))]
mod probe;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub mod sqlite;
mod subscriber_map;
pub mod supervise;
mod tls_problem;
pub mod tokens;
pub mod waker_executor;

/// Makes a future that is about to be spawned a task of the simulated process that spawns it.
#[cfg(feature = "simulation")]
pub(crate) use crate::simulation::in_process;

/// Only a simulated process can be stopped.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn in_process<F>(future: F) -> F {
    future
}

/// A store.
pub trait Engine: fmt::Debug + Send + Sync + 'static {
    /// Carries out one request for a caller who is waiting.
    fn call(&self, request: Request) -> BoxFuture<Result<Reply, StoreError>>;

    /// Carries out requests nobody is waiting for (renewals, releases of dropped guards), on a
    /// connection of their own, each with its own answer in the same order.
    fn call_background(
        self: Arc<Self>,
        requests: Vec<Request>,
    ) -> BoxFuture<Vec<Result<Reply, StoreError>>>;

    /// How many renewals take it no longer than one. More in one call may not be answered in time, and then none is.
    fn max_renewals_per_call(&self) -> usize {
        usize::MAX
    }

    /// Which part of the store a name belongs to. Each may be slow or gone by itself, so what is asked of one is not to wait
    /// for another.
    fn shard(&self, _name: &str) -> usize {
        0
    }

    /// Which locks its names stand for: the same text for all clients that mean the same ones, as far as that can be
    /// known. No secrets.
    fn namespace_id(&self) -> String;

    /// Which server it is, as far as that can be known: two places may be one server's. No secrets.
    fn server_id(&self) -> String {
        self.namespace_id()
    }

    /// For how long the store has certainly remembered what it granted; `None` if it does not forget when it ends. Makes a
    /// connection if there is none.
    fn uptime(self: Arc<Self>) -> BoxFuture<Result<Option<Uptime>, StoreError>> {
        Box::pin(async { Ok(None) })
    }

    /// Resolves when the store may have forgotten what it granted: it has restarted, or another has taken its place. Stays
    /// connected to it meanwhile, so that this is noticed at once.
    fn incarnation_changed(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    /// The answer, where the store can give it on the spot without any I/O: always, or never. `now` is
    /// the caller's clock.
    fn call_now(
        &self,
        _request: &Request,
        _now: &dyn Fn() -> Moment,
    ) -> Option<Result<Reply, StoreError>> {
        None
    }

    /// Starts listening for releases; resolves once none can be missed any more.
    fn subscribe(self: Arc<Self>, channel: Channel) -> BoxFuture<Result<Subscription, StoreError>>;

    /// Hears what happens to the locks whose names match a glob pattern, without a prefix; resolves once nothing can be
    /// missed any more.
    fn monitor(self: Arc<Self>, pattern: String) -> BoxFuture<Result<ChangeFeed, StoreError>>;

    /// What is held under names that match a glob pattern, without a prefix; some of it at a time, and
    /// perhaps twice. Begins at 0.
    fn scan(self: Arc<Self>, pattern: String, from: u64) -> BoxFuture<Result<Page, StoreError>>;

    /// Reports the holders of the lock with this name and its kind; `None` if it is free. Only reads.
    fn inspect(
        self: Arc<Self>,
        name: Arc<str>,
    ) -> BoxFuture<Result<Option<(Kind, LockSnapshot)>, StoreError>> {
        Box::pin(inspect::inspect_each_kind(self, name))
    }

    /// Tells other clients, for `ttl`, what the client with this uuid calls itself; `None` takes it back.
    fn set_label(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> BoxFuture<Result<(), StoreError>>;

    /// What the clients with these uuids call themselves.
    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> BoxFuture<Result<Vec<Option<String>>, StoreError>>;

    /// The client is closed, and has given back what it could: nothing will be asked any more.
    fn close(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async {})
    }

    /// What an operator should know about the store: whether it is fit for locks, and what to do. Only reads, unless a `probe`
    /// is asked for: then a lock that nobody else has the name of is acquired and released.
    fn diagnose(self: Arc<Self>, probe: bool) -> BoxFuture<Result<Vec<Diagnostic>, StoreError>>;
}

/// What is known of a store that may forget everything when it restarts.
#[derive(Clone, Copy, Debug)]
pub struct Uptime {
    /// It has not restarted for this long, perhaps for longer.
    pub at_least: Duration,
    /// By which connection that is known. What is answered over the same one comes from the same start: where this is the
    /// same before and after a call, the call was.
    pub connection: u64,
}

/// A boxed future: the trait is used as `dyn Engine`.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A part of what was looked for.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// What was found.
    pub found: Vec<Subject>,
    /// Where to go on; none at the end.
    pub next: Option<u64>,
    /// About how many keys the store has examined for this, where it does not know the names of its locks.
    pub scanned: u64,
}

/// Hears of releases until it is dropped.
///
/// One message wakes one [`Subscription::notified`]; one that nobody awaits is kept for the next.
pub struct Subscription {
    subscriber: Arc<Subscriber>,
    stop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// The store's end of a [`Subscription`].
#[derive(Debug, Default)]
pub struct Subscriber {
    notification: Notify,
    disconnected: AtomicBool,
    closed: AtomicBool,
}

impl Subscription {
    /// A listener that calls `stop` when it goes.
    pub fn new(subscriber: Arc<Subscriber>, stop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            subscriber,
            stop: Some(Box::new(stop)),
        }
    }

    /// Resolves at the next message, or when one may have been missed.
    pub async fn notified(&self) {
        self.subscriber.notification.notified().await;
    }

    /// Whether it is of no use any more.
    pub fn is_closed(&self) -> bool {
        self.subscriber.closed.load(Ordering::Relaxed)
    }

    /// Whether the store counts us among those who listen.
    pub fn is_live(&self) -> bool {
        !self.subscriber.disconnected.load(Ordering::Relaxed)
    }
}

impl Subscriber {
    /// Nothing will be heard here any more; whoever listens has to begin anew, and hears why not.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.set_disconnected(true);
        self.notify();
    }

    /// Passes a message on.
    pub fn notify(&self) {
        self.notification.notify_one();
    }

    /// Notes whether messages can arrive at all.
    pub fn set_disconnected(&self, disconnected: bool) {
        self.disconnected.store(disconnected, Ordering::Relaxed);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("ear", &self.subscriber)
            .finish()
    }
}

/// Why a store gave no [`Reply`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreError {
    /// What kind of trouble.
    pub kind: StoreErrorKind,
    /// What the store or the network said; never a password.
    pub detail: String,
}

/// The kinds of trouble, by what one may conclude.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreErrorKind {
    /// We may not do that. Nothing was done.
    Denied,
    /// We may not do a part of that. What came before it was done.
    PartiallyDenied,
    /// The connection ended before the reply: it may have been carried out, or still be.
    Interrupted,
    /// It was carried out, but too few of the store's replicas have it to rely on that.
    NotReplicated,
    /// No lock there can have that name. Nothing was done.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only a cluster is so particular")
    )]
    InvalidName,
    /// The store has no memory for it. Nothing was done.
    OutOfMemory,
    /// The request was never sent.
    Unreachable,
    /// The store is up but not ready (loading, busy with a script, read-only). Nothing was done.
    NotReady,
    /// The store answered something we do not understand.
    Unexpected,
    /// The store cannot be used as it is: damaged, another program's, of a version we do not know. Nothing was done.
    Unusable,
    /// No reply in time: it may have been carried out, or still be.
    TimedOut,
    /// There is no connection that nobody else can read. The request was never sent.
    #[cfg_attr(
        not(feature = "tls"),
        allow(dead_code, reason = "only an encrypted connection has such trouble")
    )]
    Tls(TlsProblem),
    /// Something else lives under that name. Nothing was done.
    WrongKind,
}

impl From<WrongKind> for StoreError {
    fn from(_: WrongKind) -> Self {
        Self::new(
            StoreErrorKind::WrongKind,
            "something of another kind lives under that name",
        )
    }
}

impl StoreError {
    /// Trouble of this kind.
    pub fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// Whether the request may have been carried out, or may still be.
    pub fn is_indeterminate(&self) -> bool {
        if planted!(LostReplyDidNothing) {
            return false;
        }
        match self.kind {
            StoreErrorKind::PartiallyDenied
            | StoreErrorKind::Interrupted
            | StoreErrorKind::NotReplicated
            | StoreErrorKind::TimedOut
            | StoreErrorKind::Unexpected => true,
            StoreErrorKind::Denied
            | StoreErrorKind::InvalidName
            | StoreErrorKind::OutOfMemory
            | StoreErrorKind::Tls(_)
            | StoreErrorKind::Unreachable
            | StoreErrorKind::NotReady
            | StoreErrorKind::Unusable
            | StoreErrorKind::WrongKind => false,
        }
    }

    /// Whether the same request may well work a little later.
    pub const fn is_transient(&self) -> bool {
        match self.kind {
            StoreErrorKind::Interrupted
            | StoreErrorKind::NotReplicated
            | StoreErrorKind::TimedOut
            | StoreErrorKind::Unreachable
            | StoreErrorKind::NotReady => true,
            StoreErrorKind::Denied
            | StoreErrorKind::PartiallyDenied
            | StoreErrorKind::InvalidName
            | StoreErrorKind::OutOfMemory
            | StoreErrorKind::Tls(_)
            | StoreErrorKind::Unexpected
            | StoreErrorKind::Unusable
            | StoreErrorKind::WrongKind => false,
        }
    }

    /// Whether somebody may mend it while nobody waits: whatever passes, and certificates are renewed.
    pub const fn is_retryable(&self) -> bool {
        self.is_transient() || matches!(self.kind, StoreErrorKind::Tls(_))
    }
}
