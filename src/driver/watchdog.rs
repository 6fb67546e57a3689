//! Renews held locks and notices lost ones.
//!
//! One schedule holds all holds of a client, ordered by when each is to be checked. Renewals that are due at the same
//! time are sent together, each batch on its own, so that a slow batch delays no other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::Level;

use super::clock::{Clock, with_timeout};
use super::hold::Hold;
use super::{ClientSettings, label, no_reply, unexpected_reply};
use crate::engine::events::Events;
use crate::engine::supervise::{Panicked, RESTART_DELAY, Restarts, catch_panic, catch_panic_sync};
use crate::engine::tag_simulated_process;
use crate::engine::{Engine, StoreError, StoreErrorKind};
use crate::protocol::lease::{CHECK_LEASE, LostReason};
use crate::protocol::permit::permit_count;
use crate::protocol::{Action, Kind, Moment, Reply};

/// Maximum number of renewals in one call, where the store supports that many.
const BATCH: usize = 100;

/// Maximum work of one call, in commands that a server runs for it: the server does nothing else meanwhile.
const MAX_WORK: usize = 1000;

/// Maximum sleep while anything is held: timers stop while the machine is suspended, and a lease that expired meanwhile
/// should be noticed soon afterwards. The watchdog wakes every second anyway while anything is held, so a new hold rarely
/// has to wake it.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// When each hold is to be checked.
#[derive(Debug)]
pub(crate) struct Schedule {
    clock: Clock,
    events: Events,
    state: Mutex<ScheduleState>,
    wake_earlier: Notify,
}

#[derive(Debug)]
struct ScheduleState {
    due: BTreeMap<(Moment, u64), Arc<Hold>>,
    /// When the watchdog wakes by itself; `None` if it waits for a notification.
    wakes_at: Option<Moment>,
    /// Whether the watchdog is checking holds, which the schedule does not contain meanwhile.
    ticking: bool,
    /// Whether a hold was added since the watchdog was last about to sleep.
    changed: bool,
    stopped: bool,
    /// When the store's incarnation was last seen to change: grants that were requested before may be forgotten.
    incarnation_changed_at: Option<Moment>,
}

impl Schedule {
    pub(super) const fn new(clock: Clock, events: Events) -> Self {
        Self {
            clock,
            events,
            state: Mutex::new(ScheduleState {
                due: BTreeMap::new(),
                wakes_at: None,
                ticking: false,
                changed: false,
                stopped: false,
                incarnation_changed_at: None,
            }),
            wake_earlier: Notify::const_new(),
        }
    }

    /// Moves a hold from one moment to another, into the schedule or out of it.
    pub(super) fn replace(&self, hold: &Arc<Hold>, old: Option<Moment>, new: Option<Moment>) {
        let mut state = self.lock();
        if let Some(old) = old {
            state.due.remove(&(old, hold.id));
        }
        let Some(new) = new else { return };
        state.due.insert((new, hold.id), hold.clone());
        state.changed = true;
        if state.wakes_at.is_none_or(|wakes_at| new < wakes_at) {
            self.wake_earlier.notify_one();
        }
    }

    /// Returns all scheduled holds.
    pub(super) fn all(&self) -> Vec<Arc<Hold>> {
        self.lock().due.values().cloned().collect()
    }

    /// Verifies all holds at once, because the store may have forgotten its grants.
    fn mark_all_suspect(&self) {
        if planted!(RestartNotNoticed) {
            return;
        }
        self.lock().incarnation_changed_at = Some(self.clock.now());
        let holds = self.all();
        if !holds.is_empty() {
            let held = holds.len();
            self.events.emit(Level::WARN, move || {
                tracing::warn!(
                    target: "distlock::lease",
                    holds = held,
                    "at risk: the server restarted or was replaced; checking every hold"
                );
            });
        }
        for hold in holds {
            hold.mark_suspect();
        }
    }

    /// Returns whether the grant of a request that was sent then may be forgotten.
    pub(super) fn is_suspect(&self, sent: Moment) -> bool {
        self.lock()
            .incarnation_changed_at
            .is_some_and(|changed_at| sent <= changed_at)
    }

    fn is_empty(&self) -> bool {
        self.lock().due.is_empty()
    }

    pub(super) fn is_ticking(&self) -> bool {
        self.lock().ticking
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.wake_earlier.notify_one();
    }

    /// Notes that the holds that were being checked are in the schedule again, or have ended.
    fn ticked(&self) {
        self.lock().ticking = false;
    }

    fn take_due(&self) -> Vec<Arc<Hold>> {
        let now = self.clock.now();
        let mut state = self.lock();
        let later = state.due.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut state.due, later);
        state.ticking = !due.is_empty();
        drop(state);
        due.into_values().collect()
    }

    /// Returns when to wake next, unless notified sooner; `None` to wait for a notification, `Err` to end.
    fn next_wake(&self) -> Result<Option<Moment>, Stopped> {
        let now = self.clock.now();
        let mut state = self.lock();
        state.ticking = false;
        if state.stopped {
            return Err(Stopped);
        }
        let first = state.due.keys().next().map(|(due, _)| *due);
        let awake = first.is_some() || std::mem::take(&mut state.changed);
        let heartbeat = now + HEARTBEAT;
        state.wakes_at = awake.then(|| first.map_or(heartbeat, |due| due.min(heartbeat)));
        Ok(state.wakes_at)
    }

    fn lock(&self) -> MutexGuard<'_, ScheduleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Stopped;

/// A hold that is to be renewed, and for how long.
type DueRenewal = (Arc<Hold>, Duration);

/// Holds with a renewal that is due or in flight. A panic in the task puts them at risk and has them renewed again:
/// none is forgotten.
struct RenewalBatch(VecDeque<DueRenewal>);

impl RenewalBatch {
    /// Applies the same reply to every hold.
    fn apply_to_all(mut self, sent: Moment, reply: &Result<Reply, StoreError>) {
        while let Some((hold, lease)) = self.0.front() {
            apply_reply(hold, *lease, sent, reply.clone());
            self.0.pop_front();
        }
    }
}

impl Drop for RenewalBatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (hold, lease) in self.0.drain(..) {
                let failed = || hold.renewal_failed(lease, "the task that renews it has panicked");
                let _ = catch_panic_sync(failed);
            }
        }
    }
}

/// Runs the watchdog of one client. Ends when the schedule is stopped, which the client does when it is dropped.
pub(super) async fn run(
    schedule: Arc<Schedule>,
    engine: Arc<dyn Engine>,
    settings: ClientSettings,
    client: Arc<str>,
) {
    let mut renewals = JoinSet::new();
    let mut restarts = Restarts::new("watchdog", &schedule.events);
    loop {
        let watching = watch(&schedule, &engine, &settings, &client, &mut renewals);
        let Err(panicked) = catch_panic(watching).await else {
            return;
        };
        restarts.report(panicked);
        schedule.ticked();
        let soon = schedule.clock.now() + RESTART_DELAY;
        schedule.clock.sleep_until(Some(soon)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the driver owns these tasks")]
async fn watch(
    schedule: &Schedule,
    engine: &Arc<dyn Engine>,
    settings: &ClientSettings,
    client: &Arc<str>,
    renewals: &mut JoinSet<()>,
) {
    let clock = schedule.clock.clone();
    // Polled in this task, so that it ends with the watchdog.
    let mut announcing = std::pin::pin!(label::announce(
        settings.label.clone(),
        engine.clone(),
        clock.clone(),
        client.clone(),
        settings.command_timeout,
        schedule.events.clone(),
    ));
    let mut incarnation_changed = engine.clone().incarnation_changed();
    loop {
        let due = schedule.take_due().into_iter();
        let mut to_check = RenewalBatch(due.map(|hold| (hold.clone(), hold.terms.lease)).collect());
        let mut due_renewals = RenewalBatch(VecDeque::new());
        while let Some((hold, _)) = to_check.0.front() {
            if let Some(lease) = hold.tick() {
                due_renewals.0.push_back((hold.clone(), lease));
            }
            to_check.0.pop_front();
        }
        let size = BATCH.min(engine.max_renewals_per_call());
        let shards = group_by_shard(&**engine, &due_renewals.0);
        due_renewals.0.clear();
        let limit = settings.command_timeout;
        for shard in shards {
            let (large, small): (Vec<_>, Vec<_>) = batches(shard, size).partition(is_large);
            // Small batches are sent independently, large ones one after the other.
            let queues = small.into_iter().map(|batch| vec![batch]);
            for queue in queues.chain((!large.is_empty()).then_some(large)) {
                let renewal = renew_in_turn(engine.clone(), clock.clone(), queue, limit);
                renewals.spawn(tag_simulated_process(renewal));
            }
        }
        let Ok(next) = schedule.next_wake() else {
            return;
        };
        tokio::select! {
            // A client that holds nothing need not know.
            () = &mut incarnation_changed, if !schedule.is_empty() => {
                schedule.mark_all_suspect();
                incarnation_changed = engine.clone().incarnation_changed();
            }
            () = clock.sleep_until(next) => {}
            () = schedule.wake_earlier.notified() => {}
            // A batch that has panicked has put its holds at risk, and they are in the schedule.
            Some(ended) = renewals.join_next() => if let Err(ended) = ended && ended.is_panic() {
                Panicked::from_payload(ended.into_panic()).report("renewal", &schedule.events);
            },
            () = &mut announcing => {}
        }
    }
}

/// Groups renewals by shard of the store: a shard that does not reply costs the holds on the others nothing.
fn group_by_shard(
    engine: &dyn Engine,
    due_renewals: &VecDeque<DueRenewal>,
) -> Vec<Vec<DueRenewal>> {
    let mut shards: BTreeMap<usize, Vec<DueRenewal>> = BTreeMap::new();
    for (hold, lease) in due_renewals {
        let shard = engine.shard(&hold.subject.name);
        shards
            .entry(shard)
            .or_default()
            .push((hold.clone(), *lease));
    }
    shards.into_values().collect()
}

/// Splits renewals into one batch per call: up to `size` of them, and no more work than a server may be kept busy with.
fn batches(due_renewals: Vec<DueRenewal>, size: usize) -> impl Iterator<Item = RenewalBatch> {
    let mut batches: Vec<RenewalBatch> = Vec::new();
    let mut capacity = 0;
    for (hold, lease) in due_renewals {
        let work = work(&hold);
        match batches.last_mut() {
            Some(batch) if batch.0.len() < size && work <= capacity => {
                capacity -= work;
                batch.0.push_back((hold, lease));
            }
            _ => {
                capacity = MAX_WORK.saturating_sub(work);
                batches.push(RenewalBatch(VecDeque::from([(hold, lease)])));
            }
        }
    }
    batches.into_iter()
}

/// Returns whether one of the batch's renewals alone keeps a server busy for a moment. Such a batch has only one.
fn is_large(batch: &RenewalBatch) -> bool {
    batch.0.iter().any(|(hold, _)| work(hold) >= MAX_WORK)
}

/// Returns a server's work for the renewal of a hold, roughly in commands: each hold of a reader has a key of its own,
/// and each permit an entry.
fn work(hold: &Hold) -> usize {
    let commands = match hold.subject.kind {
        // Each of the reader's keys is read and renewed; the rest is for the lock itself.
        Kind::Read => 4 + 2 * hold.count(),
        // Permits with an expired lease are reclaimed first.
        Kind::Semaphore => 18 + permit_count(hold.owner),
        _ => 5,
    };
    commands.try_into().unwrap_or(usize::MAX)
}

/// Renews batches, each sent after the reply to the one before, so that the server serves other clients between them.
/// If the store does not reply to one, the renewals behind it count as failed, too: their holders are notified now and
/// not in turn.
async fn renew_in_turn(
    engine: Arc<dyn Engine>,
    clock: Clock,
    batches: Vec<RenewalBatch>,
    limit: Duration,
) {
    let mut batches = batches.into_iter();
    for batch in batches.by_ref() {
        if !renew(engine.clone(), clock.clone(), batch, limit).await {
            break;
        }
    }
    for batch in batches {
        batch.apply_to_all(clock.now(), &Err(no_reply(limit)));
    }
}

/// Renews one batch and applies the replies to its holds. Returns whether the store has replied in time.
async fn renew(
    engine: Arc<dyn Engine>,
    clock: Clock,
    mut batch: RenewalBatch,
    limit: Duration,
) -> bool {
    let requests = batch.0.iter().map(|(hold, lease)| {
        let owner = hold.owner;
        hold.request(Action::Renew {
            owner,
            lease: *lease,
        })
    });
    let requests = requests.collect();
    // The next attempt is due after a third of the shortest lease.
    let leases = batch.0.iter().map(|(_, lease)| *lease);
    let shortest = leases.filter(|lease| *lease != CHECK_LEASE).min();
    let shortest = shortest.map(|lease| lease / 3);
    let limit = shortest.map_or(limit, |third| third.min(limit));
    let sent = clock.now();
    let replies = with_timeout(limit, engine.call_background(requests)).await;
    let Some(replies) = replies else {
        batch.apply_to_all(sent, &Err(no_reply(limit)));
        return false;
    };
    for reply in replies {
        if let Some((hold, lease)) = batch.0.front() {
            apply_reply(hold, *lease, sent, reply);
        }
        batch.0.pop_front();
        if planted!(OnlyFirstRenewed) {
            break;
        }
    }
    true
}

fn apply_reply(hold: &Arc<Hold>, lease: Duration, sent: Moment, reply: Result<Reply, StoreError>) {
    match reply {
        Ok(Reply::Renewed) => hold.renewed(lease, sent),
        Ok(_) if planted!(RefusedRenewalCounts) => hold.renewed(lease, sent),
        Err(_) if planted!(FailedRenewalCounts) => hold.renewed(lease, sent),
        Ok(reply) => match reply.refusal() {
            Some(reason) => hold.lose(reason),
            None => hold.renewal_failed(lease, &unexpected_reply(&reply).detail),
        },
        // Other data has replaced the lock.
        Err(failure) if failure.kind == StoreErrorKind::WrongKind => hold.lose(LostReason::Removed),
        Err(failure) => hold.renewal_failed(lease, &failure.detail),
    }
}
