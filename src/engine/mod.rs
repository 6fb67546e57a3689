//! Engines: the stores behind one narrow trait.
//!
//! An engine turns a [`Request`] into a [`Reply`], atomically, and delivers the notification of a
//! release. It decides nothing else. Engines depend on `protocol/` and on nothing above it.

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
pub(crate) use crate::simulation::tag_simulated_process;

/// Returns the future unchanged: only a simulated process can be stopped.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn tag_simulated_process<F>(future: F) -> F {
    future
}

/// A store as the driver sees it.
pub trait Engine: fmt::Debug + Send + Sync + 'static {
    /// Executes one request for a caller that waits for the reply.
    fn call(&self, request: Request) -> BoxFuture<Result<Reply, StoreError>>;

    /// Executes requests that no caller waits for (renewals, releases of dropped guards), on a
    /// connection of their own. Returns a reply for each request, in the same order.
    fn call_background(
        self: Arc<Self>,
        requests: Vec<Request>,
    ) -> BoxFuture<Vec<Result<Reply, StoreError>>>;

    /// Returns how many renewals in one call take no longer than one. With more, the replies may
    /// not arrive in time, and then none of them does.
    fn max_renewals_per_call(&self) -> usize {
        usize::MAX
    }

    /// Returns the shard of the store that a name belongs to. Each shard may be slow or unavailable
    /// by itself, so a request to one must not wait for another.
    fn shard(&self, _name: &str) -> usize {
        0
    }

    /// Identifies the lock namespace (server, database, prefix): equal for all clients whose equal
    /// names mean the same lock, as far as that can be known. Contains no secrets.
    fn namespace_id(&self) -> String;

    /// Identifies the server, as far as that can be known: two namespaces may be on one server.
    /// Contains no secrets.
    fn server_id(&self) -> String {
        self.namespace_id()
    }

    /// Returns for how long the store has certainly remembered its grants; `None` if it does not
    /// forget them when it ends. Connects if there is no connection.
    fn uptime(self: Arc<Self>) -> BoxFuture<Result<Option<Uptime>, StoreError>> {
        Box::pin(async { Ok(None) })
    }

    /// Resolves when the store may have forgotten its grants: it has restarted or failed over.
    /// Stays connected meanwhile, so that this is noticed at once.
    fn incarnation_changed(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    /// Returns the reply, if the engine computes replies at once and without any I/O: always, or
    /// never. `now` is the caller's clock.
    fn call_now(
        &self,
        _request: &Request,
        _now: &dyn Fn() -> Moment,
    ) -> Option<Result<Reply, StoreError>> {
        None
    }

    /// Subscribes to releases; resolves once no notification can be missed any more.
    fn subscribe(self: Arc<Self>, channel: Channel) -> BoxFuture<Result<Subscription, StoreError>>;

    /// Subscribes to changes of the locks whose names, without the prefix, match a glob pattern;
    /// resolves once no change can be missed any more.
    fn monitor(self: Arc<Self>, pattern: String) -> BoxFuture<Result<ChangeFeed, StoreError>>;

    /// Returns a part of the locks that are held under names that, without the prefix, match a glob
    /// pattern. A lock may be returned twice. The first part begins at 0.
    fn scan(self: Arc<Self>, pattern: String, from: u64) -> BoxFuture<Result<Page, StoreError>>;

    /// Reports the holders of the lock with this name and its kind; `None` if it is free. Only reads.
    fn inspect(
        self: Arc<Self>,
        name: Arc<str>,
    ) -> BoxFuture<Result<Option<(Kind, LockSnapshot)>, StoreError>> {
        Box::pin(inspect::inspect_each_kind(self, name))
    }

    /// Publishes the label of the client with this uuid to other clients, for `ttl`; `None` removes
    /// it.
    fn set_label(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> BoxFuture<Result<(), StoreError>>;

    /// Returns the labels of the clients with these uuids.
    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> BoxFuture<Result<Vec<Option<String>>, StoreError>>;

    /// Closes the engine: its client is closed and has released what it could, and sends no further
    /// requests.
    fn close(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async {})
    }

    /// Reports what an operator should know about the store: whether it is fit for locks, and what
    /// to do. Only reads, unless a `probe` is asked for: then a lock with a unique name is acquired
    /// and released.
    fn diagnose(self: Arc<Self>, probe: bool) -> BoxFuture<Result<Vec<Diagnostic>, StoreError>>;
}

/// The uptime of a store that may forget everything when it restarts.
#[derive(Clone, Copy, Debug)]
pub struct Uptime {
    /// The store has not restarted for this long, perhaps for longer.
    pub at_least: Duration,
    /// The connection by which the uptime is known. Replies over one connection come from the same
    /// start of the store: if this number is the same before and after a call, so does the reply to
    /// that call.
    pub connection: u64,
}

/// A boxed future: the trait is used as `dyn Engine`.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A part of the results of a scan.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The locks that were found.
    pub found: Vec<Subject>,
    /// Where the next part begins; `None` at the end.
    pub next: Option<u64>,
    /// About how many keys the store has examined for this part, if it does not know the names of
    /// its locks.
    pub scanned: u64,
}

/// A subscription to releases, which ends when it is dropped.
///
/// One notification wakes one [`Subscription::notified`]; a notification that no task awaits is
/// kept for the next call.
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
    /// Creates a subscription that calls `stop` when it is dropped.
    pub fn new(subscriber: Arc<Subscriber>, stop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            subscriber,
            stop: Some(Box::new(stop)),
        }
    }

    /// Resolves at the next notification, or when one may have been missed.
    pub async fn notified(&self) {
        self.subscriber.notification.notified().await;
    }

    /// Reports whether the subscription is closed: it gets no notification any more.
    pub fn is_closed(&self) -> bool {
        self.subscriber.closed.load(Ordering::Relaxed)
    }

    /// Reports whether the store counts this client among the subscribers.
    pub fn is_live(&self) -> bool {
        !self.subscriber.disconnected.load(Ordering::Relaxed)
    }
}

impl Subscriber {
    /// Closes the subscription: no notification can arrive any more. Its waiter is woken, has to
    /// subscribe anew, and then learns why that is not possible.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.set_disconnected(true);
        self.notify();
    }

    /// Passes a notification on.
    pub fn notify(&self) {
        self.notification.notify_one();
    }

    /// Records whether notifications can arrive at all.
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
        f.debug_struct("Subscription")
            .field("subscriber", &self.subscriber)
            .finish()
    }
}

/// The error of a request for which a store gave no [`Reply`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreError {
    /// The kind of error.
    pub kind: StoreErrorKind,
    /// The message of the store or the network; never a password.
    pub detail: String,
}

/// The kinds of store errors, by what they say about the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreErrorKind {
    /// The client lacks a permission. Nothing was done.
    Denied,
    /// The client lacks a permission for a part of the request. The part before it was done.
    PartiallyDenied,
    /// The connection ended before the reply: the request may have been executed, or still be.
    Interrupted,
    /// The request was executed, but too few of the store's replicas have it to rely on that.
    NotReplicated,
    /// No lock in this store can have that name. Nothing was done.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only a cluster restricts the names of locks")
    )]
    InvalidName,
    /// The store has no memory, or no disk space, for it. Nothing was done.
    OutOfMemory,
    /// The request was never sent.
    Unreachable,
    /// The store is up but not ready (loading, busy with a script, read-only). Nothing was done.
    NotReady,
    /// The store's reply is not one that this client understands.
    Unexpected,
    /// The store cannot be used as it is: damaged, another program's, of an unknown version.
    /// Nothing was done.
    Unusable,
    /// No reply came in time: the request may have been executed, or still be.
    TimedOut,
    /// No secure connection could be made. The request was never sent.
    #[cfg_attr(
        not(feature = "tls"),
        allow(dead_code, reason = "only TLS connections have this error")
    )]
    Tls(TlsProblem),
    /// A primitive of another kind exists under that name. Nothing was done.
    WrongKind,
}

impl From<WrongKind> for StoreError {
    fn from(_: WrongKind) -> Self {
        Self::new(
            StoreErrorKind::WrongKind,
            "the name belongs to a lock of another kind",
        )
    }
}

impl StoreError {
    /// Creates an error of this kind.
    pub fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// Reports whether the request may have been executed, or may still be.
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

    /// Reports whether the same request may well succeed a little later.
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

    /// Reports whether a later retry, for which no caller waits, may succeed: the error is
    /// transient, or an operator may renew a certificate.
    pub const fn is_retryable(&self) -> bool {
        self.is_transient() || matches!(self.kind, StoreErrorKind::Tls(_))
    }
}
