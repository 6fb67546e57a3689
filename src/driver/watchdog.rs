//! Renews what is held and notices what is lost.
//!
//! One schedule for all holds of a client, ordered by when each wants to be looked at; renewals that
//! fall due together travel together, each batch on its own, so that a slow one holds up no other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::clock::{Clock, within};
use super::hold::Hold;
use super::{Settings, label, no_answer, unexpected};
use crate::engine::{Engine, Failure};
use crate::protocol::lease::LOOK;
use crate::protocol::{Action, Moment, Reply};

/// How many renewals travel in one call, where the store can take so many.
const BATCH: usize = 100;

/// While anything is held nobody sleeps longer: timers stand still while the machine does, and a lease
/// that ran out in its sleep should be noticed soon after. It also spares most grants a wake-up call.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// When each hold wants to be looked at.
#[derive(Debug)]
pub(crate) struct Schedule {
    clock: Clock,
    agenda: Mutex<Agenda>,
    sooner: Notify,
}

#[derive(Debug)]
struct Agenda {
    due: BTreeMap<(Moment, u64), Arc<Hold>>,
    /// When the watchdog will look by itself; `None` if it waits to be called.
    looks_at: Option<Moment>,
    /// Whether it is looking at holds that are out of the agenda meanwhile.
    looking: bool,
    /// Whether anything was entered since it last looked.
    touched: bool,
    stopped: bool,
    /// When the store was last found to be another: what was asked before may be forgotten.
    unrest: Option<Moment>,
}

impl Schedule {
    pub(super) const fn new(clock: Clock) -> Self {
        Self {
            clock,
            agenda: Mutex::new(Agenda {
                due: BTreeMap::new(),
                looks_at: None,
                looking: false,
                touched: false,
                stopped: false,
                unrest: None,
            }),
            sooner: Notify::const_new(),
        }
    }

    /// Moves a hold from one moment to another, in or out.
    pub(super) fn replace(&self, hold: &Arc<Hold>, old: Option<Moment>, new: Option<Moment>) {
        let mut agenda = self.lock();
        if let Some(old) = old {
            agenda.due.remove(&(old, hold.id));
        }
        let Some(new) = new else { return };
        agenda.due.insert((new, hold.id), hold.clone());
        agenda.touched = true;
        if agenda.looks_at.is_none_or(|looks_at| new < looks_at) {
            self.sooner.notify_one();
        }
    }

    /// Everything that is held.
    pub(super) fn all(&self) -> Vec<Arc<Hold>> {
        self.lock().due.values().cloned().collect()
    }

    /// The store may have forgotten what it granted: everything is asked about at once.
    fn suspect_all(&self) {
        self.lock().unrest = Some(self.clock.now());
        let holds = self.all();
        if !holds.is_empty() {
            let held = holds.len();
            tracing::warn!(
                held,
                "at risk: the server has restarted, or is another; asking it"
            );
        }
        for hold in holds {
            hold.suspect();
        }
    }

    /// Whether what was granted on a request sent then may be forgotten.
    pub(super) fn is_suspect(&self, sent: Moment) -> bool {
        self.lock().unrest.is_some_and(|unrest| sent <= unrest)
    }

    fn is_empty(&self) -> bool {
        self.lock().due.is_empty()
    }

    pub(super) fn is_looking(&self) -> bool {
        self.lock().looking
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.sooner.notify_one();
    }

    fn take_due(&self) -> Vec<Arc<Hold>> {
        let now = self.clock.now();
        let mut agenda = self.lock();
        let later = agenda.due.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut agenda.due, later);
        agenda.looking = !due.is_empty();
        drop(agenda);
        due.into_values().collect()
    }

    /// When to look next, unless called sooner; `None` to wait for the call, `Err` to end.
    fn next_look(&self) -> Result<Option<Moment>, Stopped> {
        let now = self.clock.now();
        let mut agenda = self.lock();
        agenda.looking = false;
        if agenda.stopped {
            return Err(Stopped);
        }
        let first = agenda.due.keys().next().map(|(due, _)| *due);
        let awake = first.is_some() || std::mem::take(&mut agenda.touched);
        let heartbeat = now + HEARTBEAT;
        agenda.looks_at = awake.then(|| first.map_or(heartbeat, |due| due.min(heartbeat)));
        Ok(agenda.looks_at)
    }

    fn lock(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Stopped;

/// A hold that is to be renewed, and for how long.
type Wanted = (Arc<Hold>, Duration);

/// The watchdog of one client. Ends when the schedule is stopped, which its client does when it goes.
#[expect(clippy::disallowed_methods, reason = "the driver's own tasks")]
pub(super) async fn run(
    schedule: Arc<Schedule>,
    engine: Arc<dyn Engine>,
    settings: Settings,
    client: Arc<str>,
) {
    let clock = schedule.clock.clone();
    let mut renewals = JoinSet::new();
    // Polled here: it ends with the watchdog.
    let mut announcing = std::pin::pin!(label::announce(
        settings.label.clone(),
        engine.clone(),
        clock.clone(),
        client,
        settings.command_timeout,
    ));
    let mut unrest = engine.clone().unrest();
    loop {
        let wanted: Vec<_> = schedule
            .take_due()
            .into_iter()
            .filter_map(|hold| hold.tick().map(|lease| (hold, lease)))
            .collect();
        let size = BATCH.min(engine.renews_at_once());
        for part in parts(&*engine, wanted) {
            for batch in part.chunks(size) {
                let limit = settings.command_timeout;
                renewals.spawn(renew(engine.clone(), clock.clone(), batch.to_vec(), limit));
            }
        }
        let Ok(next) = schedule.next_look() else {
            return;
        };
        tokio::select! {
            // Who holds nothing need not know.
            () = &mut unrest, if !schedule.is_empty() => {
                schedule.suspect_all();
                unrest = engine.clone().unrest();
            }
            () = clock.sleep_until(next) => {}
            () = schedule.sooner.notified() => {}
            Some(_) = renewals.join_next() => {}
            () = &mut announcing => {}
        }
    }
}

/// Those that are to be renewed, for each part of the store: one that does not answer costs those elsewhere nothing.
fn parts(engine: &dyn Engine, wanted: Vec<Wanted>) -> impl Iterator<Item = Vec<Wanted>> {
    let mut parts: BTreeMap<usize, Vec<Wanted>> = BTreeMap::new();
    for (hold, lease) in wanted {
        let part = engine.part(&hold.subject.name);
        parts.entry(part).or_default().push((hold, lease));
    }
    parts.into_values()
}

/// One batch. What it learns goes to the holds themselves.
async fn renew(engine: Arc<dyn Engine>, clock: Clock, batch: Vec<Wanted>, limit: Duration) {
    let requests = batch.iter().map(|(hold, lease)| {
        let owner = hold.owner;
        hold.request(Action::Renew {
            owner,
            lease: *lease,
        })
    });
    let requests = requests.collect();
    // A third of the shortest lease is when the next try is due.
    let leases = batch.iter().map(|(_, lease)| *lease);
    let shortest = leases.filter(|lease| *lease != LOOK).min();
    let shortest = shortest.map(|lease| lease / 3);
    let limit = shortest.map_or(limit, |third| third.min(limit));
    let sent = clock.now();
    let replies = within(limit, engine.call_apart(requests)).await;
    let replies = replies.unwrap_or_else(|| vec![Err(no_answer(limit)); batch.len()]);
    for ((hold, lease), reply) in batch.into_iter().zip(replies) {
        settle(&hold, lease, sent, reply);
    }
}

fn settle(hold: &Arc<Hold>, lease: Duration, sent: Moment, reply: Result<Reply, Failure>) {
    match reply {
        Ok(Reply::Renewed) => hold.renewed(lease, sent),
        Ok(reply) => match reply.refusal() {
            Some(reason) => hold.lose(reason),
            None => hold.renewal_failed(lease, &unexpected(&reply).detail),
        },
        Err(failure) => hold.renewal_failed(lease, &failure.detail),
    }
}
