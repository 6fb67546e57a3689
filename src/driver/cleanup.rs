//! Finishes what nobody waits for: releases of dropped guards, and requests whose outcome is unknown.
//!
//! Jobs are sent to a task beside the watchdog, so that they outlive the caller and its runtime; a
//! store that answers on the spot needs no task. Everything a job sends may be sent again: counts are
//! absolute and an undone request stays undone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::hold::Hold;
use super::{Core, no_answer};
use crate::engine::Failure;
use crate::protocol::{Action, OwnerId, Reply, Request};

/// A store that has been silent for a lease and this long has nothing of ours any more.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One thing to finish.
#[derive(Debug)]
pub(crate) enum Job {
    /// Bring the store's count down to the number of guards; where an acquire is in doubt, so that it
    /// cannot raise it again later.
    Recount {
        hold: Arc<Hold>,
        in_doubt: Option<u32>,
    },
    /// Remove every trace of a hold that has ended.
    Release(Arc<Hold>),
    /// Take back an acquire from zero that nobody knows the outcome of.
    Undo {
        core: Arc<Core>,
        name: Arc<str>,
        owner: OwnerId,
        lease: Duration,
    },
}

/// The inbox of the task, and how much it has still to do.
#[derive(Debug, Default)]
pub(crate) struct Cleanup {
    inbox: Mutex<Option<mpsc::UnboundedSender<Entry>>>,
    open: Arc<Open>,
}

#[derive(Debug, Default)]
struct Open {
    jobs: AtomicUsize,
    none: Notify,
}

/// A job, and the note that it is open for as long as this lives.
#[derive(Debug)]
pub(super) struct Entry {
    job: Job,
    _open: Ticket,
}

#[derive(Debug)]
struct Ticket(Arc<Open>);

impl Cleanup {
    /// From now on jobs go to the task that reads this.
    pub(super) fn open(&self) -> mpsc::UnboundedReceiver<Entry> {
        let (inbox, jobs) = mpsc::unbounded_channel();
        *self.lock() = Some(inbox);
        jobs
    }

    /// Never blocks, never fails, needs no runtime.
    pub(super) fn push(&self, job: Job) {
        let inbox = self.lock().clone();
        match inbox {
            Some(inbox) => {
                let entry = Entry {
                    job,
                    _open: Ticket::new(&self.open),
                };
                // A task that has ended has nobody left to clean up for.
                let _ = inbox.send(entry);
            }
            None => job.finish_now(),
        }
    }

    /// Resolves when nothing is open.
    pub(super) async fn finished(&self) {
        loop {
            let none = self.open.none.notified();
            if self.open.jobs.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }

    pub(super) fn stop(&self) {
        self.lock().take();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<mpsc::UnboundedSender<Entry>>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of one client. Ends when the client has gone and every job is done.
pub(super) async fn run(mut jobs: mpsc::UnboundedReceiver<Entry>) {
    let mut working = JoinSet::new();
    loop {
        tokio::select! {
            entry = jobs.recv() => match entry {
                Some(entry) => {
                    working.spawn(async move { entry.job.finish().await });
                }
                None => break,
            },
            Some(_) = working.join_next() => {}
        }
    }
    while working.join_next().await.is_some() {}
}

impl Job {
    /// Sends until the store has answered, or has certainly forgotten by itself.
    async fn finish(self) {
        let (core, lease) = match &self {
            Self::Recount { hold, .. } | Self::Release(hold) => {
                (hold.core.clone(), hold.terms.lease)
            }
            Self::Undo { core, lease, .. } => (core.clone(), *lease),
        };
        let give_up_at = core.clock.now() + lease + PATIENCE;
        let mut pause = PAUSE;
        loop {
            let failure = match self.attempt(&core).await {
                Ok(()) => return,
                Err(failure) => failure,
            };
            // Whoever waits here must not wait for a store that does not answer us.
            self.tell_waiters(None);
            if !failure.is_passing() || core.clock.now() >= give_up_at {
                tracing::warn!(name = ?self.name(), why = failure.detail, "could not clean up; the lease will");
                return;
            }
            core.clock.sleep_until(core.clock.now() + pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the driver keeps the time")]
    async fn attempt(&self, core: &Core) -> Result<(), Failure> {
        // Held while the store is asked: a re-entry meanwhile would change the count we send.
        let _order = match self {
            Self::Recount { hold, .. } => Some(hold.recount.lock().await),
            Self::Release(_) | Self::Undo { .. } => None,
        };
        let Some(request) = self.request() else {
            return Ok(());
        };
        let limit = core.settings.command_timeout;
        let answer = core.engine.clone().call_apart(vec![request]);
        let Ok(replies) = tokio::time::timeout(limit, answer).await else {
            return Err(no_answer(limit));
        };
        for reply in replies {
            self.done(&reply?);
        }
        Ok(())
    }

    /// The same, where the store answers on the spot.
    fn finish_now(self) {
        // Held elsewhere only for as long as a store in memory takes to answer.
        let _order = match &self {
            Self::Recount { hold, .. } => loop {
                if let Ok(order) = hold.recount.try_lock() {
                    break Some(order);
                }
                std::thread::yield_now();
            },
            Self::Release(_) | Self::Undo { .. } => None,
        };
        let engine = match &self {
            Self::Recount { hold, .. } | Self::Release(hold) => &hold.core.engine,
            Self::Undo { core, .. } => &core.engine,
        };
        if let Some(request) = self.request()
            && let Some(reply) = engine.call_now(&request)
        {
            self.done(&reply);
        }
    }

    /// What to send now; nothing if the hold is over and its release goes its own way.
    fn request(&self) -> Option<Request> {
        match self {
            Self::Recount { hold, in_doubt } => {
                let state = hold.state();
                let (owner, left) = (hold.owner.clone(), state.lease.count());
                if state.lease.end().is_some() || left == 0 {
                    return None;
                }
                drop(state);
                Some(hold.request(match *in_doubt {
                    Some(attempt) => Action::Undo {
                        owner,
                        attempt,
                        left,
                    },
                    None => Action::Release { owner, left },
                }))
            }
            Self::Release(hold) => Some(hold.request(Action::Release {
                owner: hold.owner.clone(),
                left: 0,
            })),
            Self::Undo { name, owner, .. } => Some(Request {
                name: name.clone(),
                kind: crate::protocol::Kind::Mutex,
                action: Action::Undo {
                    owner: owner.clone(),
                    attempt: 1,
                    left: 0,
                },
            }),
        }
    }

    fn done(&self, reply: &Reply) {
        tracing::debug!(name = ?self.name(), ?reply, "cleaned up");
        let listeners = match reply {
            Reply::Released { listeners } => Some(*listeners),
            _ => None,
        };
        self.tell_waiters(listeners);
    }

    fn tell_waiters(&self, listeners: Option<u32>) {
        if let Self::Release(hold) = self {
            hold.core.waiters.vacate(hold, listeners);
        }
    }

    fn name(&self) -> &Arc<str> {
        match self {
            Self::Recount { hold, .. } | Self::Release(hold) => &hold.name,
            Self::Undo { name, .. } => name,
        }
    }
}

impl Ticket {
    fn new(open: &Arc<Open>) -> Self {
        open.jobs.fetch_add(1, Ordering::AcqRel);
        Self(open.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.jobs.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

/// A job that is pushed if the future that would have made it needless is dropped.
#[derive(Debug)]
pub(super) struct Unfinished {
    jobs: Vec<Job>,
    core: Arc<Core>,
}

impl Unfinished {
    pub(super) const fn new(core: Arc<Core>, jobs: Vec<Job>) -> Self {
        Self { jobs, core }
    }

    /// The outcome is known: nothing to clean up.
    pub(super) fn settled(mut self) {
        self.jobs.clear();
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return;
        }
        for job in self.jobs.drain(..) {
            self.core.cleanup.push(job);
        }
    }
}
