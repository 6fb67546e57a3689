//! The judges of a scenario. They see what a user sees and the state of the store, and share nothing with the code that they judge.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock::{Error, FencingToken};
use tokio::time::{Instant, sleep};

use crate::store::Store;
use crate::workload::{Kind, View};

/// The way in which a guard may share a lock with others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Claim {
    /// The guard excludes every other owner.
    Alone,
    /// The guard excludes writers, not readers.
    Shared,
    /// The guard holds this many of all permits.
    Permits { count: u32, total: u32 },
}

/// The judge that found a violation.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Judge {
    /// No two guards that exclude each other are valid at one moment.
    Exclusion,
    /// The hold of a valid guard is in the store, by the store's clock, and the guard is valid for no longer than the requested lease.
    Backing,
    /// Tokens increase.
    Tokens,
    /// A loss is reported, in time, by the release at the latest, and only if the hold is lost.
    Loss,
    /// Errors are explained by faults.
    Errors,
    /// Every call ends within its longest time; a call that waits does not time out earlier than it should.
    Resolution,
    /// A free lock is soon granted to a waiter.
    Progress,
    /// Waiters of a fair lock are served in their order.
    FairOrder,
    /// The store's counts equal those of the guards.
    Counts,
    /// Nothing is left behind.
    Orphans,
    /// No task panics, even if the panic is caught. The hook in `world.rs` records panics, and not the ledger.
    Panic,
}

impl Judge {
    pub(crate) const ALL: [Self; 11] = [
        Self::Exclusion,
        Self::Backing,
        Self::Tokens,
        Self::Loss,
        Self::Errors,
        Self::Resolution,
        Self::Progress,
        Self::FairOrder,
        Self::Counts,
        Self::Orphans,
        Self::Panic,
    ];
}

/// A broken promise.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Violation {
    pub(crate) judge: Judge,
    pub(crate) at: Duration,
    pub(crate) what: String,
}

/// All guards of a scenario, and the observations of them. Clones share their state.
#[derive(Clone)]
pub(crate) struct Ledger {
    state: Arc<Mutex<State>>,
    begun: Instant,
}

#[derive(Default)]
struct State {
    next: u64,
    grants: u64,
    guards: BTreeMap<u64, Entry>,
    waiters: BTreeMap<u64, Waiter>,
    /// Every token, with its owner and when its guard was seen.
    tokens: Vec<(FencingToken, String, Instant)>,
    /// The longest time by which the reply to a grant may be later than that of a grant that followed it.
    overtaking: Duration,
    errors: u64,
    losses: u64,
    violations: Vec<Violation>,
    /// No fault happens any more, so faults explain no error.
    is_calm: bool,
    /// No fault happens at all, so faults explain no loss.
    forbids_losses: bool,
    /// The moment from which on no fault explains an error other than a loss, where no fault happens at all.
    forbids_errors: Option<Instant>,
    /// The last moment with a guard, or without a waiter.
    last_busy: Option<Instant>,
    /// The store with the holds of the guards, and the kind of the locks.
    store: Option<(Kind, Store)>,
    /// The moment at which each owner of a lock was first seen. A hold that is handed off in memory keeps its owner.
    owners: BTreeMap<(String, String), Instant>,
    store_losses: Vec<StoreLoss>,
}

/// The store loses every hold: a lock is forced open, or a server restarts without its data.
#[derive(Debug)]
struct StoreLoss {
    begun: Instant,
    /// `None` while the request that forces the lock open is under way.
    ended: Option<Instant>,
    /// The longest time for which a guard of a lost hold may be valid.
    grace: Duration,
}

/// A guard, as the judges know it.
struct Entry {
    client: String,
    claim: Claim,
    /// The names of the guard's locks, each with its owner.
    locks: Vec<(String, String)>,
    /// The moment at which the first of its owners was first seen.
    since: Instant,
    /// The longest lease that was requested.
    lease: Duration,
    view: Arc<dyn View>,
}

/// A call that waits without a limit.
#[derive(Clone)]
struct Waiter {
    client: String,
    since: Instant,
    calm: bool,
}

/// The result of a scenario.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Summary {
    pub(crate) grants: u64,
    pub(crate) errors: u64,
    pub(crate) losses: u64,
    pub(crate) violations: Vec<Violation>,
}

/// Two calls that begin this far apart arrive in this order.
const APART: Duration = Duration::from_millis(500);
/// The longest time for which a free lock stays free while a client waits for it: a lost message costs this much.
const LONGEST_PAUSE: Duration = Duration::from_millis(3500);

/// Upper bound for the time that a reply is under way, in scenarios where the store loses holds.
const REPLY: Duration = Duration::from_millis(200);

/// The most violations that are recorded for one judge.
const MOST: usize = 5;

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            begun: Instant::now(),
        }
    }

    /// Records a granted guard. Every other guard that counts as held at this moment must be one that it may share with.
    pub(crate) fn enter(
        &self,
        client: &str,
        claim: Claim,
        lease: Duration,
        view: &Arc<dyn View>,
    ) -> u64 {
        let locks = view.locks();
        let mut state = self.lock();
        let now = Instant::now();
        let owners = locks.iter();
        let owners = owners.map(|lock| *state.owners.entry(lock.clone()).or_insert(now));
        let since = owners.min().unwrap_or(now);
        if view.is_held() && !state.is_excused(&**view, &locks, since) {
            for (name, owner) in &locks {
                let others = state.guards.values().filter(|entry| {
                    let mut locks = entry.locks.iter();
                    locks.any(|(other, by)| other == name && (by != owner || owner.is_empty()))
                        && entry.view.is_held()
                        && !state.is_excused(&*entry.view, &entry.locks, entry.since)
                });
                let others: Vec<_> = others.map(|entry| (&*entry.client, entry.claim)).collect();
                if conflicts(claim, &others) {
                    let what = format!("{client} got `{name}` {claim:?} beside {others:?}");
                    self.note(&mut state, Judge::Exclusion, what);
                }
            }
        }
        state.next += 1;
        state.grants += 1;
        state.last_busy = None;
        let number = state.next;
        let entry = Entry {
            client: client.to_owned(),
            claim,
            locks,
            since,
            lease,
            view: view.clone(),
        };
        if let Some(what) = entry.exaggeration() {
            self.note(&mut state, Judge::Backing, what);
        }
        state.guards.insert(number, entry);
        if let Some(token) = view.token() {
            let owner = locks_of(&state, number).to_owned();
            let mut earlier = state
                .tokens
                .iter()
                .filter(|(.., at)| now - *at >= state.overtaking);
            // An owner that re-enters keeps its token.
            let greater =
                earlier.find(|(other, by, _)| *other > token || (*other == token && *by != owner));
            if let Some((greater, ..)) = greater {
                let what = format!("token {token} was granted after {greater}");
                self.note(&mut state, Judge::Tokens, what);
            }
            state.tokens.push((token, owner, now));
        }
        number
    }

    /// Records that the guard is dropped: from here on it protects nothing.
    pub(crate) fn leave(&self, number: u64) {
        let mut state = self.lock();
        state.guards.remove(&number);
        state.last_busy = None;
    }

    /// Records that the release of a guard is sent now: from here on the guard protects nothing.
    pub(crate) fn release(&self, number: u64) -> Releasing {
        let mut state = self.lock();
        state.last_busy = None;
        let entry = state.guards.remove(&number);
        let entry = entry.expect("a guard is released once");
        let is_stored = || {
            let waiters = &mut state.waiters.values();
            // A client hands its hold off to a waiter of its own without a request to the store.
            waiters.any(|waiter| waiter.client == entry.client)
                || state.is_stored(&*entry.view, &entry.locks)
        };
        let is_lost = !entry.view.is_held() || !is_stored();
        Releasing {
            ledger: self.clone(),
            entry,
            is_lost,
        }
    }

    /// Records that a call with this longest wait has ended without the lock.
    pub(crate) fn busy(&self, client: &str, begun: Instant, longest: Duration) {
        let took = begun.elapsed();
        // The client's clock may run fast.
        if took + Duration::from_millis(2) < longest.mul_f64(0.99) {
            let what = format!("{client} was to wait for {longest:?} and gave up after {took:?}");
            self.violation(Judge::Resolution, what);
        }
    }

    /// Follows a guard until it is released. The judge `Backing` reports a valid guard whose hold the store has not had for longer than
    /// `grace`; the judge `Loss` reports a lost guard that is valid again.
    pub(crate) fn follow(&self, number: u64, kind: Kind, store: Store, grace: Duration) {
        let ledger = self.clone();
        tokio::spawn(async move { ledger.following(number, kind, store, grace).await });
    }

    async fn following(&self, number: u64, kind: Kind, store: Store, grace: Duration) {
        let millisecond = Duration::from_millis(1);
        let (mut is_lost, mut missing_since) = (false, None);
        loop {
            let (view, locks, client) = {
                let mut state = self.lock();
                let Some(entry) = state.guards.get(&number) else {
                    return;
                };
                if let Some(what) = entry.exaggeration() {
                    return self.note(&mut state, Judge::Backing, what);
                }
                let client = entry.client.clone();
                (entry.view.clone(), entry.locks.clone(), client)
            };
            let permits = view.permit_ids();
            let mut missing = locks.iter();
            let missing = missing.find(|(name, owner)| !store.holds(kind, name, owner, &permits));
            // The guard is checked last, so that it is valid at this very moment.
            if !view.is_held() {
                is_lost = true;
            } else if is_lost {
                let what = format!("a lost guard of {client} is valid again");
                return self.violation(Judge::Loss, what);
            } else if let Some((name, owner)) = missing {
                if missing_since.get_or_insert_with(Instant::now).elapsed() >= grace {
                    let what = format!(
                        "{client} holds `{name}` and the store does not have it; {owner}, {:?} left",
                        view.remaining()
                    );
                    return self.violation(Judge::Backing, what);
                }
            } else {
                missing_since = None;
            }
            // The guard is checked now and then, and just before the end of its lease.
            let left = view.remaining().saturating_sub(millisecond);
            let pause = if is_lost { 20 * millisecond } else { left };
            sleep(pause.clamp(millisecond, Duration::from_millis(150))).await;
        }
    }

    /// Records the beginning of a call that waits without a limit.
    pub(crate) fn wait(&self, client: &str) -> Waiting {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        let waiter = Waiter {
            client: client.to_owned(),
            since: Instant::now(),
            calm: state.is_calm,
        };
        state.waiters.insert(number, waiter);
        drop(state);
        let ledger = self.clone();
        Waiting { ledger, number }
    }

    /// Returns when the call began that has waited longest.
    pub(crate) fn first_waits_since(&self) -> Option<Instant> {
        let state = self.lock();
        state.waiters.values().map(|waiter| waiter.since).min()
    }

    pub(crate) fn has_guards(&self) -> bool {
        !self.lock().guards.is_empty()
    }

    /// Records a failed call, which faults may cause for a while.
    pub(crate) fn error(&self, error: &Error) {
        let mut state = self.lock();
        state.errors += 1;
        let now = Instant::now();
        let allows_errors = state.forbids_errors.is_none_or(|from| now < from);
        let explained =
            (error.is_transient() && allows_errors) || (error.is_lost() && !state.forbids_losses);
        if !explained || state.is_calm {
            let what = format!("no fault explains this error: {error}");
            self.note(&mut state, Judge::Errors, what);
        }
    }

    /// Records a failed call with this longest wait. At its deadline a reply may be under way, so that it fails without a fault.
    pub(crate) fn wait_error(&self, error: &Error, begun: Instant, longest: Duration) {
        if error.is_transient() && begun.elapsed() >= longest.mul_f64(0.99) {
            self.lock().errors += 1;
        } else {
            self.error(error);
        }
    }

    pub(crate) fn loss(&self) {
        let mut state = self.lock();
        state.losses += 1;
        if state.is_calm || state.forbids_losses {
            let what = "a lock was lost without a fault".to_owned();
            self.note(&mut state, Judge::Loss, what);
        }
    }

    /// Sets whether faults have ended, so that they explain no error from now on.
    pub(crate) fn set_calm(&self, is_calm: bool) {
        let mut state = self.lock();
        state.is_calm = is_calm;
        state.last_busy = None;
    }

    /// Rules out that a fault explains a loss from now on.
    pub(crate) fn forbid_losses(&self) {
        self.lock().forbids_losses = true;
    }

    /// Rules out that a fault explains an error other than a loss, from that moment on.
    pub(crate) fn forbid_errors(&self, from: Instant) {
        self.lock().forbids_errors = Some(from);
    }

    /// Allows for a store that loses a grant and grants once more: the reply to the first may be this much later than that to the second.
    pub(crate) fn let_grants_overtake(&self, by: Duration) {
        self.lock().overtaking = by;
    }

    /// Has the judges read this store, too, for locks of this kind.
    pub(crate) fn look_into(&self, store: Store, kind: Kind) {
        self.lock().store = Some((kind, store));
    }

    /// Records that the store loses its holds at some moment between now and [`end_store_loss`](Self::end_store_loss). A guard of one of
    /// them may be valid beside others for as long as `grace` afterwards.
    pub(crate) fn begin_store_loss(&self, grace: Duration) {
        self.lock().store_losses.push(StoreLoss {
            begun: Instant::now(),
            ended: None,
            grace,
        });
    }

    /// Records that the store has lost its holds.
    pub(crate) fn end_store_loss(&self) {
        if let Some(loss) = self.lock().store_losses.last_mut() {
            loss.ended = Some(Instant::now());
        }
    }

    /// Checks ten times a second whether a free lock is granted, until it is dropped.
    pub(crate) async fn watch_progress(&self) {
        loop {
            sleep(Duration::from_millis(100)).await;
            let mut state = self.lock();
            let now = Instant::now();
            let is_held = state.guards.values().any(|entry| entry.view.is_held());
            if is_held || state.waiters.is_empty() {
                state.last_busy = Some(now);
                continue;
            }
            let since = *state.last_busy.get_or_insert(now);
            let waiters = state.waiters.values();
            let since = waiters
                .map(|waiter| waiter.since)
                .min()
                .unwrap_or(now)
                .max(since);
            if now - since > LONGEST_PAUSE {
                let what = format!("for {:?} a free lock was not granted", now - since);
                self.note(&mut state, Judge::Progress, what);
                state.last_busy = Some(now);
            }
        }
    }

    pub(crate) fn violation(&self, judge: Judge, what: impl Into<String>) {
        self.note(&mut self.lock(), judge, what.into());
    }

    fn note(&self, state: &mut State, judge: Judge, what: String) {
        let at = self.begun.elapsed();
        let found = state.violations.iter();
        if found.filter(|found| found.judge == judge).count() < MOST {
            state.violations.push(Violation { judge, at, what });
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let state = self.lock();
        Summary {
            grants: state.grants,
            errors: state.errors,
            losses: state.losses,
            violations: state.violations.clone(),
        }
    }

    /// Counts a grant without a guard.
    pub(crate) fn granted(&self) {
        self.lock().grants += 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether the store has this guard's hold; `true` if the judges do not read the store.
    fn is_stored(&self, view: &dyn View, locks: &[(String, String)]) -> bool {
        self.store.as_ref().is_none_or(|(kind, store)| {
            let permits = view.permit_ids();
            let mut locks = locks.iter();
            locks.all(|(name, owner)| store.holds(*kind, name, owner, &permits))
        })
    }

    /// Returns whether a guard's hold was lost with the others of the store so recently that its client need not know of it.
    fn is_excused(&self, view: &dyn View, locks: &[(String, String)], since: Instant) -> bool {
        if self.store_losses.is_empty() || self.is_stored(view, locks) {
            return false;
        }
        let mut losses = self.store_losses.iter();
        // The first loss after the grant has certainly taken it. The grant may also have come before the last loss, with a reply after it.
        let loss = losses.find(|loss| since <= loss.begun).or_else(|| {
            let last = self.store_losses.last();
            last.filter(|loss| loss.ended.is_none_or(|ended| since <= ended + REPLY))
        });
        loss.is_some_and(|loss| {
            let ended = loss.ended;
            ended.is_none_or(|ended| ended.elapsed() <= loss.grace)
        })
    }
}

impl Entry {
    /// Describes how the guard reports a longer validity than it can have.
    fn exaggeration(&self) -> Option<String> {
        let Self {
            client,
            lease,
            view,
            ..
        } = self;
        let left = view.remaining();
        if left > *lease {
            return Some(format!(
                "{client} has {left:?} left of a lease of {lease:?}"
            ));
        }
        let is_over = !view.is_held() && !left.is_zero();
        is_over.then(|| format!("{client} has {left:?} left of a guard that is not valid"))
    }
}

/// A release that is under way.
#[must_use]
pub(crate) struct Releasing {
    ledger: Ledger,
    entry: Entry,
    /// Whether the guard, or the store, knew that the hold was lost when the release was sent.
    is_lost: bool,
}

impl Releasing {
    /// Records the result of the release, which must not have confirmed a hold that was lost. An error is judged as any other.
    pub(crate) fn ended(self, result: &Result<(), Error>) {
        let Self {
            ledger,
            entry,
            is_lost,
        } = self;
        let client = &entry.client;
        match result {
            Ok(()) if is_lost => {
                let what = format!("{client} lost a lock, and its release was confirmed");
                ledger.violation(Judge::Loss, what);
            }
            Ok(()) => {}
            Err(error) => ledger.error(error),
        }
        if let Some(what) = entry.exaggeration() {
            ledger.violation(Judge::Backing, what);
        }
    }
}

/// A waiting call, until this is dropped.
pub(crate) struct Waiting {
    ledger: Ledger,
    number: u64,
}

impl Waiting {
    /// Records the grant, which must not come before that of a fair waiter that began long before.
    pub(crate) fn granted_fairly(self) {
        let mut state = self.ledger.lock();
        let Some(waiter) = state.waiters.get(&self.number).cloned() else {
            return;
        };
        let mut others = state.waiters.values();
        let passed = others.find(|other| other.since + APART <= waiter.since);
        if let Some(passed) = passed.filter(|_| waiter.calm).cloned() {
            let earlier = waiter.since - passed.since;
            let what = format!(
                "{} was served before {}, which began {earlier:?} earlier",
                waiter.client, passed.client
            );
            self.ledger.note(&mut state, Judge::FairOrder, what);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.ledger.lock().waiters.remove(&self.number);
    }
}

/// Returns the owner of a guard of one lock.
fn locks_of(state: &State, number: u64) -> &str {
    state
        .guards
        .get(&number)
        .map_or("", |entry| &entry.locks[0].1)
}

fn conflicts(claim: Claim, others: &[(&str, Claim)]) -> bool {
    let mut others = others.iter().map(|(_, claim)| *claim);
    match claim {
        Claim::Alone => others.next().is_some(),
        Claim::Shared => others.any(|other| other == Claim::Alone),
        Claim::Permits { count, total } => {
            let taken = others.map(|other| match other {
                Claim::Permits { count, .. } => count,
                Claim::Alone | Claim::Shared => total,
            });
            taken.sum::<u32>() + count > total
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}: {}", self.judge, self.at, self.what)
    }
}
