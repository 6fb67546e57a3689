//! What runs: the only tasks, timers and clock of the library.
//!
//! - [`acquire`] drives one acquisition: past the line ([`reenter`]), in it, and at its head ([`head`]), which asks the
//!   store ([`ask`]); [`release`] one release;
//! - [`queue`] waits in a line that the store keeps, and is known to stand there ([`lines`]); [`waiters`] keeps the line for each
//!   name ([`place`]) and passes locks on in memory; a waiter has a [`spot`] in it, and a [`seat`] where it is told;
//! - [`hold`] is one grant while it lasts, shared by its guards (a [`claim`] each) and the watchdog, with a longer lease on request
//!   ([`extend`]) and the [`outcome`] of its release; [`owners`] finds it again for who may re-enter, [`tokens`] is what its client has seen of them;
//! - [`multi`] acquires several locks, all or none, in one global order, with requests that are sent together, and releases all [`at_once`];
//! - [`permits`] says how many a semaphore has; [`number`] changes what is nobody's, once for each of its [`deeds`]; [`gate`] waits
//!   until there is none left;
//! - [`quorum`] takes one lock on most of several servers, each of which has a vote;
//! - [`calling`] is one request under way, [`trouble`] why it brought nothing, [`overdue`] notices those that are not answered,
//!   [`unfinished`] one that must not be forgotten when its caller is;
//! - [`watchdog`] renews what is held and notices what is lost;
//! - [`lookup`] looks at locks from outside, [`watch`] follows them; [`label`] tells others what the client calls itself;
//! - [`cleanup`] finishes what nobody waits for, [`job`] by job: dropped guards, unknown outcomes. It and the watchdog
//!   run in the [`background`], on a [`thread`] of its own, and a panic there is caught; [`clock`] is the only clock.
//!
//! Locks are taken in the order names → seat → hold → owners → schedule, a store's own last, and none across an await.
//! Wakers are woken under the first two: one that runs its task on the spot, as no executor we know does, would meet
//! itself there.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use crate::engine::events::Events;
use crate::engine::process::Process;
use crate::engine::wakeups::Wakeups;
use crate::engine::{Answer, Engine, Failure};
use crate::protocol::lease::{LostReason, Terms};
use crate::protocol::permit::owner_of;
use crate::protocol::{ClientId, Kind, Moment, OwnerId, Request, Subject};

pub(crate) mod acquire;
mod ask;
mod at_once;
pub(crate) mod background;
mod calling;
pub(crate) mod claim;
pub(crate) mod cleanup;
pub(crate) mod clock;
mod deeds;
mod extend;
pub(crate) mod gate;
mod head;
pub(crate) mod hold;
mod job;
pub(crate) mod label;
mod lines;
pub(crate) mod lookup;
pub(crate) mod multi;
pub(crate) mod number;
mod outcome;
mod overdue;
pub(crate) mod owners;
#[cfg(test)]
mod panics;
pub(crate) mod permits;
mod place;
mod queue;
pub(crate) mod quorum;
mod reenter;
pub(crate) mod release;
mod seat;
mod spot;
pub(crate) mod thread;
mod tokens;
mod trouble;
mod unfinished;
pub(crate) mod waiters;
pub(crate) mod watch;
pub(crate) mod watchdog;

use self::acquire::Wish;
use self::background::Background;
use self::calling::Calling;
use self::cleanup::Cleanup;
use self::clock::{Clock, within};
use self::deeds::Deeds;
use self::hold::Hold;
use self::label::Label;
use self::lines::Lines;
use self::overdue::Overdue;
use self::owners::{Owners, User};
use self::tokens::Tokens;
pub(crate) use self::trouble::{Trouble, TroubleWith};
use self::trouble::{needs_a_runtime, no_answer, unexpected};
use self::waiters::Waiters;
use self::watchdog::Schedule;

/// How many names a client shows of itself.
const SHOWN_NAMES: usize = 8;

/// How long after a deadline an answer that is under way is still waited for.
const LAST_WORD: Duration = Duration::from_millis(50);

/// How long a closing client waits between two looks at a busy watchdog.
const LOOKING: Duration = Duration::from_millis(1);

/// How long a closing client waits for the calls of other tasks, which end at once if their futures are polled.
const CALLS_END_WITHIN: Duration = Duration::from_secs(1);

/// How long a closed client waits for its last events.
const LAST_EVENTS: Duration = Duration::from_millis(200);

/// How one client behaves.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How long one request may take.
    pub(crate) command_timeout: Duration,
    /// How often in a row a lock may be passed on in memory.
    pub(crate) handoff_limit: u32,
    /// For how long after a grant by the store it may be.
    pub(crate) handoff_window: Duration,
    /// Whether kept-alive leases run out when nobody renews them.
    pub(crate) lapses: bool,
    /// How long other libraries leave a reader's lease, however long it was, where there are any.
    pub(crate) peer_watchdog: Option<Duration>,
    /// No lease may be longer, where new locks wait that long after a failover.
    pub(crate) longest_lease: Option<Duration>,
    /// What this client calls itself.
    pub(crate) label: Arc<Label>,
}

/// One client: what all its locks and guards share.
pub(crate) struct Core {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    pub(crate) owners: Owners,
    pub(crate) waiters: Waiters,
    lines: Lines,
    tokens: Tokens,
    deeds: Deeds,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) cleanup: Cleanup,
    overdue: Arc<Overdue>,
    /// Where its background tasks emit events, and where callers are woken.
    pub(crate) events: Events,
    pub(crate) wakeups: Wakeups,
    id: Arc<str>,
    client: ClientId,
    process: Process,
    closed: AtomicBool,
    closing: Notify,
    numbers: AtomicI64,
    /// Keeps clients apart that count alike.
    salt: u64,
    holds: AtomicU64,
}

impl Core {
    /// A client on a store; its watchdog and cleanup run in the `background`.
    pub(crate) fn start(
        id: Uuid,
        engine: Arc<dyn Engine>,
        clock: Clock,
        settings: Settings,
        background: Background,
    ) -> Arc<Self> {
        let (events, wakeups) = (background.events(), background.wakeups());
        let schedule = Arc::new(Schedule::new(clock.clone(), events.clone()));
        let cleanup = Cleanup::default();
        let overdue = Overdue::new(settings.command_timeout, wakeups.clone());
        let core = Arc::new(Self {
            salt: id.as_u64_pair().1,
            id: id.to_string().into(),
            client: ClientId::new(id.into_bytes()),
            process: Process::current(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            numbers: AtomicI64::new(1),
            holds: AtomicU64::new(0),
            owners: Owners::default(),
            waiters: Waiters::default(),
            lines: Lines::default(),
            tokens: Tokens::default(),
            deeds: Deeds::default(),
            engine,
            clock,
            settings,
            schedule,
            cleanup,
            overdue,
            events,
            wakeups,
        });
        background.run(&core);
        core
    }

    /// The client half of its owners' ids.
    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// An owner nobody has used before, nor ever will.
    pub(crate) fn fresh_owner(&self) -> OwnerId {
        if planted!(OwnerUsedAgain) {
            return OwnerId::new(self.client, 1);
        }
        OwnerId::new(self.client, self.fresh_number())
    }

    /// The same, for one that wants this.
    pub(super) fn fresh_owner_for(&self, wish: &Wish) -> OwnerId {
        match wish.subject.kind.is_of_permits() {
            true => owner_of(self.client, self.fresh_number(), wish.permits.count),
            false => self.fresh_owner(),
        }
    }

    fn fresh_number(&self) -> i64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Somebody who may hold a lock more than once.
    pub(crate) fn fresh_user(&self) -> User {
        User::new(self.fresh_number())
    }

    /// Something to roll dice with: another each time, and in each client.
    pub(super) fn fresh_seed(&self) -> u64 {
        let number = self.fresh_number().unsigned_abs();
        self.salt.wrapping_add(number)
    }

    fn fresh_hold(&self) -> u64 {
        self.holds.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether this is a forked child: the connections and leases are its parent's.
    pub(crate) fn is_forked(&self) -> bool {
        self.process.has_forked()
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
            self.wakeups.shielded(closing).await;
        }
    }

    pub(crate) fn usable(&self) -> Result<(), Trouble> {
        if self.is_forked() {
            return Err(Trouble::Forked);
        }
        if self.is_closed() {
            return Err(Trouble::Closed);
        }
        Ok(())
    }

    /// Whether a lease may be so long. One that ends with its process does not end by the clock.
    pub(crate) fn allows(&self, lease: Duration) -> Result<(), Trouble> {
        match self.settings.longest_lease {
            Some(longest) if lease > longest => Err(Trouble::TooLong(longest)),
            _ => Ok(()),
        }
    }

    /// What a lock of this kind can be had on, for these terms.
    pub(crate) fn terms(&self, kind: Kind, mut terms: Terms) -> Terms {
        terms.cut = self.settings.peer_watchdog.filter(|_| kind == Kind::Read);
        if let Some(cut) = terms.cut.filter(|_| terms.keep_alive) {
            terms.lease = terms.lease.min(cut);
        }
        terms
    }

    /// The same user's hold on the other side of a read/write lock.
    pub(super) fn other_side(&self, wish: &Wish) -> Option<Arc<Hold>> {
        let kind = wish.subject.kind.other_side()?;
        let name = wish.subject.name.clone();
        let hold = self.owners.find(wish.user?, &Subject { kind, name })?;
        hold.is_held().then_some(hold)
    }

    /// Ends every hold with `LostReason::Closed`, and has it released.
    async fn lose_all(&self) {
        loop {
            for hold in self.schedule.all() {
                if planted!(CloseKeepsHolds) {
                    break;
                }
                hold.lose(LostReason::Closed);
            }
            // A hold that the watchdog is examining is in no list; the hold learns of the close from the watchdog.
            if !self.schedule.is_looking() {
                return;
            }
            let soon = self.clock.now() + LOOKING;
            self.clock.sleep_until(Some(soon)).await;
        }
    }

    /// Calls the client something else from now on.
    pub(crate) fn relabel(&self, label: Arc<str>) {
        // A closed client has taken its leave; a forked one is not to speak for its parent.
        if self.usable().is_ok() {
            self.settings.label.change(label);
        }
    }

    /// How long one request may take when all must be over by `deadline`. A request that goes out just
    /// before it still gets a moment to be answered: a healthy store's word is better than none.
    fn limit(&self, deadline: Option<Moment>) -> Duration {
        let limit = self.settings.command_timeout;
        deadline.map_or(limit, |deadline| {
            let left = deadline.since(self.clock.now());
            left.max(LAST_WORD).min(limit)
        })
    }

    /// Something else asked of the store, for as long as a request may take.
    pub(crate) async fn within_limit<T: Send>(
        &self,
        answer: Answer<Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.settings.command_timeout;
        let answer = within(limit, self.wakeups.shield(answer)).await;
        answer.unwrap_or_else(|| Err(no_answer(limit)))
    }

    /// One request to the store, for as long as a request may take.
    pub(crate) fn call(&self, request: Request) -> Calling<'_> {
        self.call_by(request, &|| self.clock.now())
    }

    /// The same where the clock has just been read.
    fn call_at(&self, request: Request, now: Moment) -> Calling<'_> {
        self.call_by(request, &|| now)
    }

    fn call_by(&self, request: Request, now: &dyn Fn() -> Moment) -> Calling<'_> {
        if let Some(answer) = self.engine.call_now(&request, now) {
            return Calling::answered(answer);
        }
        match needs_a_runtime() {
            Ok(()) => Calling::asked(self.overdue.in_time(self.engine.call(request))),
            Err(failure) => Calling::answered(Err(failure)),
        }
    }

    /// Refuses new work, fails the waiters, gives back what is held and waits, for at most `limit`,
    /// until the store has heard of it. Says whether it has.
    pub(crate) async fn close(&self, limit: Duration) -> bool {
        if self.is_forked() {
            return true;
        }
        self.closed.store(true, Ordering::Release);
        if !planted!(CloseForgetsWaiters) {
            self.closing.notify_waiters();
            self.waiters.close();
        }
        for takes_out in self.lines.close() {
            self.cleanup.push(takes_out);
        }
        let finish = async {
            self.lose_all().await;
            // Calls of other tasks end when the client is closed, if their futures are polled. A future that is never polled again
            // must not keep `close` waiting for the whole limit.
            let calls = pin!(self.cleanup.no_calls());
            within(CALLS_END_WITHIN, self.wakeups.shield(calls)).await;
            // A call that was answered just then may have been granted a lock.
            self.lose_all().await;
            self.cleanup.finished().await;
            self.take_leave().await;
            self.engine.clone().leave().await;
        };
        let finished = within(limit, self.wakeups.shield(pin!(finish))).await;
        // A program that ends now has its last events; one whose subscriber is stuck is not kept for long.
        let flushed = self.events.flushed();
        within(LAST_EVENTS.min(limit), self.wakeups.shield(pin!(flushed))).await;
        finished.is_some()
    }
}

/// What it remembers, in brief: everything in it leads back to it.
impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .field("closed", &self.is_closed())
            .field("holds", &self.schedule.all().len())
            .field("waiting", &self.waiters.waiting())
            .field("names", &self.waiters.some_names(SHOWN_NAMES))
            .field("lines", &self.lines.some_names(SHOWN_NAMES))
            .field("owned", &self.owners.some_names(SHOWN_NAMES))
            .finish_non_exhaustive()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // A forked child has the parent's locks as they were, perhaps held by a thread it does not have.
        if !self.is_forked() {
            self.schedule.stop();
            self.cleanup.stop();
        }
    }
}
