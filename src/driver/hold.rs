//! One grant while it lasts: shared by its guards, the watchdog and whoever waits to hear of its end.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tracing::Level;

use super::acquire::Wish;
use super::claim::Claim;
use super::job::Job;
use super::outcome::Outcome;
use super::owners::User;
use super::{Core, Trouble};
use crate::engine::Failure;
use crate::protocol::lease::{End, Lease, LostReason, Risk, Terms, Tick};
use crate::protocol::{Action, FencingToken, Moment, OwnerId, Reply, Request, Subject};

/// A lock that is held.
pub(crate) struct Hold {
    pub(super) id: u64,
    pub(crate) core: Arc<Core>,
    pub(crate) subject: Subject,
    /// As it stands in the store.
    pub(crate) owner: OwnerId,
    /// Which grant it is, where the store tells them apart.
    pub(crate) token: Option<FencingToken>,
    /// As the user named it.
    pub(crate) user: Option<User>,
    /// What the first guard asked for.
    pub(crate) terms: Terms,
    state: Mutex<HoldState>,
    /// Made by the first who waits for it: most are given back before anybody does.
    ended: OnceLock<Box<Notify>>,
    /// Orders re-entries and partial releases, so that the store's count follows the guards'. Tokio's,
    /// because it is held while the store is asked.
    recount: OnceLock<Box<tokio::sync::Mutex<()>>>,
}

#[derive(Debug)]
pub(super) struct HoldState {
    pub(super) lease: Lease,
    /// Numbers the acquires, so that one of them can be undone.
    pub(super) attempts: u32,
    /// A question of its owner was never answered, and may still come.
    pub(super) echoes: bool,
    /// What its release came to.
    pub(super) outcome: Outcome,
    /// When the watchdog looks at it next.
    due: Option<Moment>,
    /// `valid_until` on the standard library's clock, so that it reads the same every time.
    shown: Option<Box<(Moment, Instant)>>,
    /// Why the last renewal failed, until one succeeds.
    renewal_error: Option<Arc<str>>,
}

impl Hold {
    /// A hold on what the store has just granted to `owner`, with its first claim; `None` if the lease
    /// ran out on the way.
    pub(super) fn granted(
        core: &Arc<Core>,
        wish: &Wish,
        owner: OwnerId,
        token: Option<FencingToken>,
        sent: Moment,
        now: Moment,
    ) -> Option<Claim> {
        let mut lease = Lease::granted(wish.terms, sent, now)?;
        if wish.subject.kind.can_be_asked_about() && core.schedule.is_suspect(sent) {
            lease.suspect(now);
        }
        let Wish {
            subject,
            terms,
            user,
            ..
        } = wish;
        let grant = (owner, token);
        Some(Self::begin(core, subject, grant, *terms, *user, lease))
    }

    /// Goes on as another's, with the same or another standing at the store.
    pub(super) fn succeed(
        &self,
        owner: OwnerId,
        token: Option<FencingToken>,
        user: Option<User>,
        lease: Lease,
    ) -> Claim {
        // Whoever it goes to wants the same terms.
        let grant = (owner, token);
        Self::begin(&self.core, &self.subject, grant, self.terms, user, lease)
    }

    /// Starts a hold: watched from now on, and found by its user.
    fn begin(
        core: &Arc<Core>,
        subject: &Subject,
        (owner, token): (OwnerId, Option<FencingToken>),
        terms: Terms,
        user: Option<User>,
        lease: Lease,
    ) -> Claim {
        let hold = Arc::new(Self {
            id: core.fresh_hold(),
            core: core.clone(),
            subject: subject.clone(),
            owner,
            token,
            user,
            terms,
            state: Mutex::new(HoldState {
                lease,
                attempts: 1,
                echoes: false,
                outcome: Outcome::default(),
                due: None,
                shown: None,
                renewal_error: None,
            }),
            ended: OnceLock::new(),
            recount: OnceLock::new(),
        });
        if let Some(user) = user {
            core.owners.insert(user, hold.clone());
        }
        hold.plan();
        Claim::new(hold, 0)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, HoldState> {
        // No code of a user's runs under this lock, so a poisoned one is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A question of its owner may still come: it would bring a ghost.
    pub(super) fn echoes(&self) {
        self.state().echoes = true;
    }

    /// Its turn among re-entries and partial releases.
    pub(super) fn recount(&self) -> &tokio::sync::Mutex<()> {
        self.recount.get_or_init(Box::default)
    }

    /// A request about this hold.
    pub(super) fn request(&self, action: Action) -> Request {
        self.subject.request(action)
    }

    /// Makes a request that says how often the lock is held. Where the store answers on the spot it does
    /// so here, while nobody can change the count.
    pub(super) fn counted(
        &self,
        action: impl FnOnce(&mut HoldState) -> Option<Action>,
    ) -> Option<(Request, Option<Result<Reply, Failure>>)> {
        let mut state = self.state();
        let request = self.request(action(&mut state)?);
        let answer = self.core.engine.call_now(&request, &|| self.now());
        Some((request, answer))
    }

    pub(crate) fn now(&self) -> Moment {
        self.core.clock.now()
    }

    /// Whether it can be relied on, by the clock and without asking anyone.
    pub(crate) fn is_held(&self) -> bool {
        self.state().lease.is_valid(self.now())
    }

    /// Why it was lost, noticed or not.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.state().lease.lost(self.now())
    }

    /// Why the last renewal failed; `None` if it succeeded, or none was due yet.
    pub(crate) fn renewal_error(&self) -> Option<Arc<str>> {
        self.state().renewal_error.clone()
    }

    /// For how long it can still be relied on.
    pub(crate) fn remaining(&self) -> Duration {
        let now = self.now();
        let lease = &self.state().lease;
        match lease.is_valid(now) {
            true => lease.valid_until().since(now),
            false => Duration::ZERO,
        }
    }

    /// The same as a point on the standard library's clock, which is what users compare with.
    pub(crate) fn valid_until_instant(&self) -> Instant {
        let mut state = self.state();
        let until = state.lease.valid_until();
        if let Some((_, instant)) = state
            .shown
            .as_deref()
            .filter(|(moment, _)| *moment == until)
        {
            return *instant;
        }
        // The clock first: what is shown may be a moment late, never early, so that nobody is held at it.
        let (now, instant) = (self.now(), self.core.clock.instant());
        let shown = if until >= now {
            instant.checked_add(until.since(now))
        } else {
            instant.checked_sub(now.since(until))
        };
        // A hundred years may be more than the clock can say; what it can say now is as good.
        let shown = shown.unwrap_or(instant);
        state.shown = Some(Box::new((until, shown)));
        shown
    }

    pub(crate) fn keeps_alive(&self, claim: &Claim) -> bool {
        self.state().lease.keeps_alive(claim.guard)
    }

    pub(crate) fn risk(&self) -> Option<Risk> {
        self.state().lease.risk(self.now())
    }

    pub(crate) fn count(&self) -> u32 {
        self.state().lease.count()
    }

    /// Resolves when the hold has ended, with the reason if it was lost.
    pub(crate) async fn ended(self: Arc<Self>) -> Option<LostReason> {
        if planted!(LossNotTold) {
            std::future::pending::<()>().await;
        }
        loop {
            // Before the state is looked at: whoever ends it looks here afterwards.
            let ended = self.news().notified();
            // By the clock, not only by the watchdog's word: it may be late, the clock is not.
            {
                let state = self.state();
                if let Some(reason) = state.lease.lost(self.now()) {
                    return Some(reason);
                }
                if state.lease.end() == Some(End::Released) {
                    return None;
                }
            }
            self.core.wakeups.shielded(ended).await;
        }
    }

    /// The watchdog looks at it; says which lease to ask the store for, if any.
    pub(super) fn tick(self: &Arc<Self>) -> Option<Duration> {
        let mut state = self.state();
        // It is out of the schedule while it is looked at.
        state.due = None;
        if self.core.is_closed() {
            drop(state);
            self.lose(LostReason::Closed);
            return None;
        }
        match state.lease.tick(self.now()) {
            Tick::Over => None,
            Tick::Sleep(until) => {
                self.watch_at(&mut state, Some(until));
                None
            }
            Tick::Renew { lease, look_again } => {
                self.watch_at(&mut state, Some(look_again));
                Some(lease)
            }
            Tick::Lost(reason) => {
                drop(state);
                self.over(reason);
                None
            }
        }
    }

    pub(super) fn renewed(self: &Arc<Self>, lease: Duration, sent: Moment) {
        let now = self.now();
        let mut state = self.state();
        state.lease.renewed(lease, sent, now);
        state.renewal_error = None;
        drop(state);
        self.emit(
            Level::TRACE,
            |name, owner| tracing::trace!(?name, %owner, "renewed"),
        );
        self.plan();
    }

    pub(super) fn renewal_failed(self: &Arc<Self>, lease: Duration, why: &str) {
        let now = self.now();
        let mut state = self.state();
        state.lease.renewal_failed(lease, now);
        state.renewal_error = Some(why.into());
        let left = state.lease.valid_until().since(now);
        let live = state.lease.end().is_none();
        drop(state);
        if live {
            let why = why.to_owned();
            self.emit(Level::WARN, move |name, owner| {
                tracing::warn!(?name, %owner, ?left, why, "at risk: a renewal has failed");
            });
        }
        self.plan();
    }

    /// The store may have forgotten it.
    pub(super) fn suspect(self: &Arc<Self>) {
        if !self.subject.kind.can_be_asked_about() {
            return;
        }
        let now = self.now();
        self.state().lease.suspect(now);
        self.plan();
    }

    /// The store has granted a lease beside the renewals: a re-entry or an extension.
    pub(super) fn extended(self: &Arc<Self>, lease: Duration, sent: Moment) {
        let now = self.now();
        self.state().lease.extended(lease, sent, now);
        self.plan();
    }

    /// The store has answered that it is not ours, or something that makes no sense.
    pub(super) fn refused(self: &Arc<Self>, reply: &Reply) -> Trouble {
        if let Some(reason) = reply.refusal() {
            self.lose(reason);
        }
        Trouble::refused(reply)
    }

    /// Ends it as lost, tells everyone, and gives back whatever the store may still have of it.
    pub(crate) fn lose(self: &Arc<Self>, reason: LostReason) {
        let first = self.state().lease.lose(reason);
        if first {
            self.over(reason);
        }
    }

    /// Takes it out of the watchdog's care.
    pub(super) fn unwatch(self: &Arc<Self>, state: &mut HoldState) {
        self.watch_at(state, None);
    }

    /// Forgets who it belongs to and tells those who wait for its end.
    pub(super) fn say_ended(&self) {
        if let Some(user) = self.user {
            self.core.owners.remove(user, self);
        }
        self.notify();
    }

    /// Where the end and the outcome are waited for.
    pub(super) fn news(&self) -> &Notify {
        self.ended.get_or_init(Box::default)
    }

    /// Wakes those who wait for the end or the outcome.
    pub(super) fn notify(&self) {
        if let Some(ended) = self.ended.get() {
            ended.notify_waiters();
        }
    }

    /// What follows once the lease machine has said "lost".
    pub(super) fn over(self: &Arc<Self>, reason: LostReason) {
        self.unwatch(&mut self.state());
        self.say_ended();
        self.core.cleanup.push(Job::Release(self.clone()));
        let level = match reason {
            LostReason::Closed => Level::DEBUG,
            _ => Level::WARN,
        };
        self.emit(level, move |name, owner| match reason {
            LostReason::Closed => {
                tracing::debug!(?name, %owner, "given back: the client was closed");
            }
            reason => tracing::warn!(?name, %owner, ?reason, "lost"),
        });
    }

    fn emit(&self, level: Level, event: impl FnOnce(&str, OwnerId) + Send + 'static) {
        let (name, owner) = (self.subject.name.clone(), self.owner);
        self.core.events.emit(level, move || event(&name, owner));
    }

    /// Has the watchdog look at it when its lease next wants something.
    pub(super) fn plan(self: &Arc<Self>) {
        let mut state = self.state();
        let due = state.lease.next_look();
        self.watch_at(&mut state, due);
    }

    fn watch_at(self: &Arc<Self>, state: &mut HoldState, due: Option<Moment>) {
        if state.due != due {
            self.core.schedule.replace(self, state.due, due);
            state.due = due;
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.subject.name)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
