//! Finishes what nobody waits for: releases of dropped guards, and requests whose outcome is unknown.
//!
//! Jobs are sent to a task beside the watchdog, so that they outlive the caller and its runtime; a
//! store that answers on the spot needs no task. Everything a job sends may be sent again: counts are
//! absolute and an undone request stays undone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::job::Job;
use super::unfinished::UnderWay;
use crate::engine::in_process;

/// How many jobs ask the store at once.
const AT_ONCE: usize = 64;

/// The inbox of the task, and how much it has still to do.
#[derive(Debug, Default)]
pub(crate) struct Cleanup {
    inbox: Mutex<Option<mpsc::UnboundedSender<Entry>>>,
    open: Arc<Open>,
    /// Calls that are under way. A call whose future is dropped becomes a job.
    calls: Arc<Open>,
}

#[derive(Debug, Default)]
struct Open {
    count: AtomicUsize,
    none: Notify,
}

/// A job, and the note that it is open for as long as this lives.
#[derive(Debug)]
pub(super) struct Entry {
    job: Job,
    under_way: Option<UnderWay>,
    open: Ticket,
}

/// Counts as one open job, release or call until the ticket is dropped.
#[derive(Debug)]
pub(super) struct Ticket(Arc<Open>);

impl Cleanup {
    /// From now on jobs go to the task that reads this.
    pub(super) fn open(&self) -> mpsc::UnboundedReceiver<Entry> {
        let (inbox, jobs) = mpsc::unbounded_channel();
        *self.lock() = Some(inbox);
        jobs
    }

    /// Never blocks, never fails, needs no runtime.
    pub(super) fn push(&self, job: Job) {
        self.push_behind(job, None);
    }

    /// The same for a job that may turn out needless once a request that is still under way is answered.
    pub(super) fn push_behind(&self, job: Job, under_way: Option<UnderWay>) {
        let inbox = self.lock().clone();
        match inbox {
            Some(inbox) => {
                let entry = Entry {
                    job,
                    under_way,
                    open: Ticket::new(&self.open),
                };
                // A task that has ended has nobody left to clean up for.
                let _ = inbox.send(entry);
            }
            None => job.finish_now(),
        }
    }

    /// A release is under way for as long as the ticket lives. Closing waits for releases as for jobs.
    pub(super) fn work(&self) -> Ticket {
        Ticket::new(&self.open)
    }

    /// A call is under way whose outcome may have to be cleaned up, for as long as the ticket lives.
    pub(super) fn call(&self) -> Ticket {
        Ticket::new(&self.calls)
    }

    /// Resolves when no call is under way any more: what each leaves to be cleaned up is a job by then.
    pub(super) async fn no_calls(&self) {
        self.calls.none().await;
    }

    /// Resolves when every job and every release is done.
    pub(super) async fn finished(&self) {
        self.open.none().await;
    }

    pub(super) fn stop(&self) {
        self.lock().take();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<mpsc::UnboundedSender<Entry>>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of one client. Ends when the client has gone and every job is done.
#[expect(clippy::disallowed_methods, reason = "the driver's own tasks")]
pub(super) async fn run(jobs: &mut mpsc::UnboundedReceiver<Entry>, working: &mut JoinSet<()>) {
    // Bounded: renewals share this thread and connection, and must not stand behind a crowd.
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        tokio::select! {
            entry = jobs.recv() => match entry {
                Some(Entry { job, under_way, open }) => {
                    let turns = turns.clone();
                    working.spawn(in_process(async move {
                        job.finish(under_way, &turns).await;
                        // Named, so that it is moved in here and goes only now.
                        drop(open);
                    }));
                }
                None => break,
            },
            Some(_) = working.join_next() => {}
        }
    }
    while working.join_next().await.is_some() {}
}

impl Open {
    async fn none(&self) {
        loop {
            let none = self.none.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Ticket {
    fn new(open: &Arc<Open>) -> Self {
        open.count.fetch_add(1, Ordering::AcqRel);
        Self(open.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}
