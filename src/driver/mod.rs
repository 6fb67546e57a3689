//! The driver: the only part of the library with tasks, timers and a clock.
//!
//! - [`acquire`] drives one acquisition: without queueing ([`reenter`]), in the wait queue, and at its head
//!   ([`queue_head`]), which sends requests to the store ([`acquire_request`]); [`release`] drives one release;
//! - [`server_queue`] waits in a queue that the store keeps, and registers its ticket ([`ticket_registry`]);
//!   [`wait_queues`] keeps the local queue for each name ([`wait_queue`]) and hands locks off in memory (a lock that changes
//!   its owner in the store is transferred); a waiter has a [`queue_entry`] in it, and a [`waiter`] through which it is
//!   notified;
//! - [`hold`] is one grant while it lasts, shared by its guards (a [`hold_ref`] each) and the watchdog, with a longer
//!   lease on request ([`extend`]) and the [`release_outcome`] of its release; [`owners`] finds the hold again for an
//!   owner that may re-enter it, [`tokens`] keeps the fencing tokens that the client has seen;
//! - [`multi`] acquires several locks, all or none, in one global order, with requests that are sent together, and
//!   releases all of them at once ([`join_all`]);
//! - [`permits`] reads and sets how many permits a semaphore has; [`counter`] changes numbers without an owner, once
//!   for each of its [`pending_keys`]; [`latch_wait`] waits until a latch has counted down to zero;
//! - [`quorum`] acquires one lock on a majority of several servers, each of which has a vote;
//! - [`pending_call`] is one request in flight, [`error`] says why a call failed, [`call_timeouts`] notices requests
//!   that get no reply, [`undo_on_drop`] undoes a request whose caller is dropped;
//! - [`watchdog`] renews held locks and notices lost ones;
//! - [`lookup`] inspects locks from outside, [`watch`] follows their changes; [`label`] publishes the client's label to
//!   other clients;
//! - [`cleanup`] finishes work that has no waiting caller, one [`cleanup_job`] at a time: releases of dropped guards,
//!   requests with unknown outcomes. Cleanup and the watchdog run in the [`background`], on a [`thread`] of their own,
//!   and a panic there is caught; [`clock`] is the only clock.
//!
//! Wakers may be the application's code, so futures that a lease thread might wake go through `with_waker_proxy`
//! (`engine/waker_executor.rs`). `planted!(Name)` is false in every ordinary build; in a test build it is true for the one
//! deliberate bug that the tests have to find (`src/planted.rs`).
//!
//! Std mutexes are locked in the order wait queues → waiter → hold → owners → schedule, a store's own mutexes last, and
//! none across an await. Wakers are woken under the mutex of the wait queues: a waker that runs its task inside of
//! `wake`, which no known executor does, would deadlock there.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use crate::engine::events::Events;
use crate::engine::fork_detector::ForkDetector;
use crate::engine::waker_executor::WakerExecutor;
use crate::engine::{BoxFuture, Engine, StoreError};
use crate::protocol::lease::{LeaseTerms, LostReason};
use crate::protocol::permit::permit_owner;
use crate::protocol::{ClientId, Kind, Moment, OwnerId, Request, Subject};

pub(crate) mod acquire;
mod acquire_request;
pub(crate) mod background;
mod call_timeouts;
pub(crate) mod cleanup;
mod cleanup_job;
pub(crate) mod clock;
pub(crate) mod counter;
mod error;
mod extend;
pub(crate) mod hold;
pub(crate) mod hold_ref;
mod join_all;
pub(crate) mod label;
pub(crate) mod latch_wait;
pub(crate) mod lookup;
pub(crate) mod multi;
pub(crate) mod owners;
#[cfg(test)]
mod panics;
mod pending_call;
mod pending_keys;
pub(crate) mod permits;
mod queue_entry;
mod queue_head;
pub(crate) mod quorum;
mod reenter;
pub(crate) mod release;
mod release_outcome;
mod server_queue;
pub(crate) mod thread;
mod ticket_registry;
mod tokens;
mod undo_on_drop;
mod wait_queue;
pub(crate) mod wait_queues;
mod waiter;
pub(crate) mod watch;
pub(crate) mod watchdog;

use self::acquire::AcquireParams;
use self::background::Background;
use self::call_timeouts::CallTimeouts;
use self::cleanup::Cleanup;
use self::clock::{Clock, with_timeout};
pub(crate) use self::error::{DriverError, NamedDriverError};
use self::error::{no_reply, require_runtime, unexpected_reply};
use self::hold::Hold;
use self::label::Label;
use self::owners::{LocalOwner, Owners};
use self::pending_call::PendingCall;
use self::pending_keys::PendingKeys;
use self::ticket_registry::TicketRegistry;
use self::tokens::Tokens;
use self::wait_queues::WaitQueues;
use self::watchdog::Schedule;

/// Maximum number of lock names in a client's debug output.
const SHOWN_NAMES: usize = 8;

/// Minimum time that a request gets for its reply, even if the deadline comes sooner.
const REPLY_GRACE: Duration = Duration::from_millis(50);

/// Interval at which a closing client checks whether the watchdog is still busy.
const WATCHDOG_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// How long a closing client waits for the calls of other tasks, which end at once if their futures are polled.
const CALLS_END_WITHIN: Duration = Duration::from_secs(1);

/// How long a closing client waits until its last events are delivered.
const LAST_EVENTS: Duration = Duration::from_millis(200);

/// The settings of one client.
#[derive(Clone, Debug)]
pub(crate) struct ClientSettings {
    /// How long one request may take.
    pub(crate) command_timeout: Duration,
    /// How often in a row a lock may be handed off in memory.
    pub(crate) handoff_limit: u32,
    /// How long after a grant by the store a lock may be handed off in memory.
    pub(crate) handoff_window: Duration,
    /// Whether kept-alive leases expire if they are not renewed.
    pub(crate) leases_expire: bool,
    /// The watchdog timeout of Redisson clients, if there are any: they shorten a reader's lease to it, however long it
    /// was.
    pub(crate) redisson_watchdog_timeout: Option<Duration>,
    /// The longest lease allowed; set where new locks wait that long after a failover.
    pub(crate) longest_lease: Option<Duration>,
    /// The label under which this client is known to others.
    pub(crate) label: Arc<Label>,
}

/// One client: the state that all its locks and guards share.
pub(crate) struct Core {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Clock,
    pub(crate) settings: ClientSettings,
    pub(crate) owners: Owners,
    pub(crate) wait_queues: WaitQueues,
    ticket_registry: TicketRegistry,
    tokens: Tokens,
    pending_keys: PendingKeys,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) cleanup: Cleanup,
    call_timeouts: Arc<CallTimeouts>,
    /// Where the background tasks emit events, and where callers are woken.
    pub(crate) events: Events,
    pub(crate) waker_executor: WakerExecutor,
    id: Arc<str>,
    client: ClientId,
    fork_detector: ForkDetector,
    closed: AtomicBool,
    closing: Notify,
    numbers: AtomicI64,
    /// Random bits that distinguish clients whose counters run alike.
    salt: u64,
    next_hold_id: AtomicU64,
}

impl Core {
    /// Starts a client on a store; its watchdog and cleanup run in the `background`.
    pub(crate) fn start(
        id: Uuid,
        engine: Arc<dyn Engine>,
        clock: Clock,
        settings: ClientSettings,
        background: Background,
    ) -> Arc<Self> {
        let (events, waker_executor) = (background.events(), background.waker_executor());
        let schedule = Arc::new(Schedule::new(clock.clone(), events.clone()));
        let cleanup = Cleanup::default();
        let call_timeouts = CallTimeouts::new(settings.command_timeout, waker_executor.clone());
        let core = Arc::new(Self {
            salt: id.as_u64_pair().1,
            id: id.to_string().into(),
            client: ClientId::new(id.into_bytes()),
            fork_detector: ForkDetector::current(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            numbers: AtomicI64::new(1),
            next_hold_id: AtomicU64::new(0),
            owners: Owners::default(),
            wait_queues: WaitQueues::default(),
            ticket_registry: TicketRegistry::default(),
            tokens: Tokens::default(),
            pending_keys: PendingKeys::default(),
            engine,
            clock,
            settings,
            schedule,
            cleanup,
            call_timeouts,
            events,
            waker_executor,
        });
        background.run(&core);
        core
    }

    /// Returns the client part of its owners' ids.
    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns an owner that was never used before and will never be used again.
    pub(crate) fn fresh_owner(&self) -> OwnerId {
        if planted!(OwnerUsedAgain) {
            return OwnerId::new(self.client, 1);
        }
        OwnerId::new(self.client, self.fresh_number())
    }

    /// Returns such an owner for an acquire with these parameters.
    pub(super) fn fresh_owner_for(&self, params: &AcquireParams) -> OwnerId {
        match params.subject.kind.has_permits() {
            true => permit_owner(self.client, self.fresh_number(), params.permits.count),
            false => self.fresh_owner(),
        }
    }

    fn fresh_number(&self) -> i64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a new local owner, which may hold a lock more than once.
    pub(crate) fn fresh_local_owner(&self) -> LocalOwner {
        LocalOwner::new(self.fresh_number())
    }

    /// Returns a random seed that differs for each call and each client.
    pub(super) fn fresh_seed(&self) -> u64 {
        let number = self.fresh_number().unsigned_abs();
        self.salt.wrapping_add(number)
    }

    fn next_hold_id(&self) -> u64 {
        self.next_hold_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether this is a forked child: the connections and leases belong to its parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.fork_detector.has_forked()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Resolves when the client is closed.
    async fn closed(&self) {
        loop {
            let closing = self.closing.notified();
            if self.is_closed() {
                return;
            }
            self.waker_executor.with_waker_proxy(closing).await;
        }
    }

    pub(crate) fn ensure_usable(&self) -> Result<(), DriverError> {
        if self.is_forked() {
            return Err(DriverError::Forked);
        }
        if self.is_closed() {
            return Err(DriverError::Closed);
        }
        Ok(())
    }

    /// Returns an error if a lease is longer than the longest one that the client's settings allow.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), DriverError> {
        match self.settings.longest_lease {
            Some(longest) if lease > longest => Err(DriverError::LeaseTooLong(longest)),
            _ => Ok(()),
        }
    }

    /// Returns the terms on which a lock of this kind is acquired.
    pub(crate) fn terms(&self, kind: Kind, mut terms: LeaseTerms) -> LeaseTerms {
        terms.redisson_ttl_cap = self
            .settings
            .redisson_watchdog_timeout
            .filter(|_| kind == Kind::Read);
        if let Some(redisson_ttl_cap) = terms.redisson_ttl_cap.filter(|_| terms.keep_alive) {
            terms.lease = terms.lease.min(redisson_ttl_cap);
        }
        terms
    }

    /// Returns the hold of the same local owner on the other side of a read/write lock.
    pub(super) fn other_side(&self, params: &AcquireParams) -> Option<Arc<Hold>> {
        let kind = params.subject.kind.other_side()?;
        let name = params.subject.name.clone();
        let hold = self
            .owners
            .find(params.local_owner?, &Subject { kind, name })?;
        hold.is_held().then_some(hold)
    }

    /// Ends every hold with `LostReason::Closed`, and has each one released.
    async fn lose_all(&self) {
        loop {
            for hold in self.schedule.all() {
                if planted!(CloseKeepsHolds) {
                    break;
                }
                hold.lose(LostReason::Closed);
            }
            // The schedule does not contain a hold that the watchdog is checking; the watchdog ends such a hold itself.
            if !self.schedule.is_ticking() {
                return;
            }
            let soon = self.clock.now() + WATCHDOG_POLL_INTERVAL;
            self.clock.sleep_until(Some(soon)).await;
        }
    }

    /// Changes the client's label.
    pub(crate) fn set_label(&self, label: Arc<str>) {
        // A closed client has already withdrawn its label; a forked child must not change its parent's.
        if self.ensure_usable().is_ok() {
            self.settings.label.change(label);
        }
    }

    /// Returns the timeout of a request that has to end by `deadline`. A request that is sent just before the deadline
    /// still gets [`REPLY_GRACE`]: a reply of a healthy store is better than none.
    fn request_timeout(&self, deadline: Option<Moment>) -> Duration {
        let limit = self.settings.command_timeout;
        deadline.map_or(limit, |deadline| {
            let left = deadline.since(self.clock.now());
            left.max(REPLY_GRACE).min(limit)
        })
    }

    /// Awaits a reply of the store other than to a [`Request`], for at most the command timeout.
    pub(crate) async fn with_command_timeout<T: Send>(
        &self,
        call: BoxFuture<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = self.settings.command_timeout;
        let reply = with_timeout(limit, self.waker_executor.with_waker_proxy_unpin(call)).await;
        reply.unwrap_or_else(|| Err(no_reply(limit)))
    }

    /// Sends one request to the store, with the command timeout.
    pub(crate) fn call(&self, request: Request) -> PendingCall<'_> {
        self.call_by(request, &|| self.clock.now())
    }

    /// Sends one request to the store; the caller has just read the clock.
    fn call_at(&self, request: Request, now: Moment) -> PendingCall<'_> {
        self.call_by(request, &|| now)
    }

    fn call_by(&self, request: Request, now: &dyn Fn() -> Moment) -> PendingCall<'_> {
        if let Some(reply) = self.engine.call_now(&request, now) {
            return PendingCall::ready(reply);
        }
        match require_runtime() {
            Ok(()) => PendingCall::sent(self.call_timeouts.with_timeout(self.engine.call(request))),
            Err(failure) => PendingCall::ready(Err(failure)),
        }
    }

    /// Closes the client: refuses new work, fails the waiters, releases what is held and waits, for at most `limit`,
    /// until the store has confirmed that. Returns whether it has.
    pub(crate) async fn close(&self, limit: Duration) -> bool {
        if self.is_forked() {
            return true;
        }
        self.closed.store(true, Ordering::Release);
        if !planted!(CloseForgetsWaiters) {
            self.closing.notify_waiters();
            self.wait_queues.close();
        }
        for leave_job in self.ticket_registry.drain() {
            self.cleanup.push(leave_job);
        }
        let finish = async {
            self.lose_all().await;
            // Calls of other tasks end when the client is closed, if their futures are polled. A future that is never
            // polled again must not keep `close` waiting for the whole limit.
            let calls = pin!(self.cleanup.calls_finished());
            with_timeout(
                CALLS_END_WITHIN,
                self.waker_executor.with_waker_proxy_unpin(calls),
            )
            .await;
            // A call that got its reply in the meantime may have been granted a lock.
            self.lose_all().await;
            self.cleanup.finished().await;
            self.withdraw_label().await;
            self.engine.clone().close().await;
        };
        let finished = with_timeout(
            limit,
            self.waker_executor.with_waker_proxy_unpin(pin!(finish)),
        )
        .await;
        // A program that ends now still receives its last events; a subscriber that is stuck does not keep it for long.
        let flushed = self.events.flushed();
        with_timeout(
            LAST_EVENTS.min(limit),
            self.waker_executor.with_waker_proxy_unpin(pin!(flushed)),
        )
        .await;
        finished.is_some()
    }
}

/// Prints a summary: every field refers back to the client.
impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .field("closed", &self.is_closed())
            .field("holds", &self.schedule.all().len())
            .field("waiting", &self.wait_queues.waiter_count())
            .field("names", &self.wait_queues.some_names(SHOWN_NAMES))
            .field("tickets", &self.ticket_registry.some_names(SHOWN_NAMES))
            .field("owned", &self.owners.some_names(SHOWN_NAMES))
            .finish_non_exhaustive()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // A forked child has a copy of the parent's mutexes, perhaps locked by a thread that does not exist in the
        // child.
        if !self.is_forked() {
            self.schedule.stop();
            self.cleanup.stop();
        }
    }
}
