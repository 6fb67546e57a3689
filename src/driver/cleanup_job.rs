//! One job that cleanup has to finish.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tracing::Level;

use super::clock::with_timeout;
use super::hold::Hold;
use super::undo_on_drop::InFlight;
use super::{Core, no_reply};
use crate::engine::StoreError;
use crate::engine::supervise::{catch_panic, catch_panic_sync};
use crate::protocol::jitter::spread;
use crate::protocol::{Action, Entry, OwnerId, Reply, Request, Subject};

/// A store that was silent for the lease and this long keeps nothing of this client any more.
const GIVE_UP_AFTER_LEASE: Duration = Duration::from_secs(60);
const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// How many panics end a job.
const MAX_PANICS: u32 = 3;

/// One job to finish.
#[derive(Debug)]
pub(crate) enum CleanupJob {
    /// Lower the store's count to the number of guards. If an acquire is in doubt, undo it, so that it cannot raise the
    /// count later.
    SyncCount {
        hold: Arc<Hold>,
        in_doubt: Option<u32>,
    },
    /// Remove every trace of a hold that has ended.
    Release(Arc<Hold>),
    /// Undo a first acquire whose outcome is unknown, or only leave the store's queue.
    Undo {
        core: Arc<Core>,
        subject: Subject,
        owner: OwnerId,
        lease: Duration,
        /// No request of the owner is in doubt: the job only removes its entry from the store's queue.
        leaves_queue_only: bool,
        /// The queue entry to remove as well, if the waiter queued under a different owner id.
        queued_owner: Option<OwnerId>,
    },
}

impl CleanupJob {
    /// Returns the job that undoes what `owner` requested with this lease.
    pub(super) fn undo(
        core: &Arc<Core>,
        subject: &Subject,
        owner: OwnerId,
        lease: Duration,
    ) -> Self {
        Self::Undo {
            core: core.clone(),
            subject: subject.clone(),
            owner,
            lease,
            leaves_queue_only: false,
            queued_owner: None,
        }
    }

    /// Returns the job that leaves the store's queue, in which `owner` waited for a lock with this lease.
    pub(super) fn leave_queue(
        core: &Arc<Core>,
        subject: &Subject,
        owner: OwnerId,
        lease: Duration,
    ) -> Self {
        Self::Undo {
            core: core.clone(),
            subject: subject.clone(),
            owner,
            lease,
            leaves_queue_only: true,
            queued_owner: None,
        }
    }

    /// Makes the job also remove this owner from the store's queue.
    pub(super) const fn also_leaving(mut self, who: Option<OwnerId>) -> Self {
        if let Self::Undo { queued_owner, .. } = &mut self {
            *queued_owner = who;
        }
        self
    }

    /// Carries the job out. Its request is of no concern afterwards.
    pub(super) async fn finish(mut self, mut in_flight: Option<InFlight>, permits: &Semaphore) {
        let events = self.core().events.clone();
        let mut panics = 0;
        while let Err(panicked) = catch_panic(self.work(in_flight.take(), permits)).await {
            panics += 1;
            // Reported once, and not retried forever: the lease ends the hold then.
            if panics == 1 {
                panicked.report("cleanup", &events);
            }
            if panics == MAX_PANICS {
                let notified = catch_panic_sync(|| self.notify_waiters(None));
                drop(notified);
                break;
            }
        }
        self.finished();
        if planted!(PanicInCleanup) {
            panic!("planted");
        }
    }

    fn core(&self) -> &Arc<Core> {
        match self {
            Self::SyncCount { hold, .. } | Self::Release(hold) => &hold.core,
            Self::Undo { core, .. } => core,
        }
    }

    /// Sends requests until the store has replied, or has certainly forgotten by itself. A request in flight is awaited
    /// first: its reply may make the job unnecessary.
    async fn work(&mut self, in_flight: Option<InFlight>, permits: &Semaphore) {
        if let Some(in_flight) = in_flight
            && let Some(reply) = in_flight.reply().await
            && !self.is_needed_after(&reply)
        {
            return;
        }
        let (core, lease) = match self {
            Self::SyncCount { hold, .. } | Self::Release(hold) => {
                (hold.core.clone(), hold.terms.lease)
            }
            Self::Undo { core, lease, .. } => (core.clone(), *lease),
        };
        let give_up_at = core.clock.now() + lease + GIVE_UP_AFTER_LEASE;
        let mut backoff = MIN_BACKOFF;
        loop {
            // No permit is held between attempts, or while an earlier request is awaited: other jobs can run meanwhile.
            let permit = permits.acquire().await;
            let attempt = self.attempt(&core).await;
            drop(permit);
            let failure = match attempt {
                Ok(()) => return,
                Err(failure) => failure,
            };
            if let Self::Release(hold) = self
                && failure.is_indeterminate()
            {
                hold.release_in_doubt();
            }
            // Local waiters must not wait for a store that does not reply to this job.
            self.notify_waiters(None);
            let gives_up = planted!(CleanupGivesUp) || core.clock.now() >= give_up_at;
            if !failure.is_retryable() || gives_up {
                let (name, owner, why) = (self.name().clone(), *self.owner(), failure.detail);
                core.events.emit(Level::WARN, move || {
                    tracing::warn!(target: "distlock::release", lock = ?name, %owner, error = why, "cleanup gave up; a lock that the call held is free when its lease expires");
                });
                return;
            }
            // Spread out, because many clients may have lost the same server at the same instant.
            let pause = backoff / 2 + spread(backoff / 2, core.fresh_seed());
            core.clock.sleep_until(Some(core.clock.now() + pause)).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    async fn attempt(&self, core: &Core) -> Result<(), StoreError> {
        let limit = core.settings.command_timeout;
        // Held while the request is in flight: a re-entry meanwhile would change the count that is sent. With a
        // timeout, because a re-entry that is never polled would keep the mutex forever.
        let _order = match self {
            Self::SyncCount { hold, .. } => {
                with_timeout(limit, Box::pin(hold.count_order().lock())).await
            }
            Self::Release(_) | Self::Undo { .. } => None,
        };
        let Some((request, _)) = self.request() else {
            return Ok(());
        };
        let requests = std::iter::once(request)
            .chain(self.leave_request())
            .collect();
        let call = core.engine.clone().call_background(requests);
        let Some(replies) = with_timeout(limit, call).await else {
            return Err(no_reply(limit));
        };
        for reply in replies {
            self.on_reply(&reply?);
        }
        Ok(())
    }

    /// Carries the job out in a store that replies without I/O.
    pub(super) fn finish_now(self) {
        if let Some((_, Some(Ok(reply)))) = self.request() {
            self.on_reply(&reply);
        }
        if let (Self::Undo { core, .. }, Some(leave)) = (&self, self.leave_request()) {
            // The request fails if a primitive of another kind has that name, to which the queue then belongs as well.
            let _ = core.engine.call_now(&leave, &|| core.clock.now());
        }
        self.finished();
    }

    /// Returns the request that removes the queue entry of another owner.
    fn leave_request(&self) -> Option<Request> {
        let Self::Undo {
            subject,
            queued_owner: Some(owner),
            ..
        } = self
        else {
            return None;
        };
        let (owner, left) = (*owner, 0);
        Some(subject.request(Action::Release { owner, left }))
    }

    /// Notes that the job is over: tasks that wait for its outcome are notified, and a store that remembers the outcome
    /// of the request need not do so any more.
    fn finished(&self) {
        let (core, subject) = match self {
            Self::SyncCount { hold, .. } => (&hold.core, &hold.subject),
            Self::Release(hold) => {
                // This has no effect if the store has replied.
                hold.release_given_up();
                (&hold.core, &hold.subject)
            }
            Self::Undo { core, subject, .. } => (core, subject),
        };
        if subject.kind.is_ownerless() {
            core.acknowledge_key(subject, *self.owner());
        }
    }

    /// Returns the request to send now, and the reply of a store that replies without I/O; `None` if the hold has
    /// ended, so that its release is another job.
    fn request(&self) -> Option<(Request, Option<Result<Reply, StoreError>>)> {
        let (core, request) = match self {
            Self::SyncCount { hold, in_doubt } => {
                return hold.count_request(|state| {
                    let (owner, count) = (hold.owner, state.lease.count());
                    if state.lease.end().is_some() || count == 0 {
                        return None;
                    }
                    Some(match *in_doubt {
                        Some(attempt) => Action::Undo {
                            owner,
                            entry: Entry::Reentry { attempt, count },
                        },
                        None => Action::Release { owner, left: count },
                    })
                });
            }
            Self::Release(hold) => {
                let owner = hold.owner;
                (&hold.core, hold.request(Action::Release { owner, left: 0 }))
            }
            Self::Undo {
                core,
                subject,
                owner,
                leaves_queue_only,
                ..
            } => {
                let owner = *owner;
                let undo = match leaves_queue_only {
                    true => Action::Release { owner, left: 0 },
                    false => Action::Undo {
                        owner,
                        entry: Entry::Fresh,
                    },
                };
                (core, subject.request(undo))
            }
        };
        let reply = core.engine.call_now(&request, &|| core.clock.now());
        Some((request, reply))
    }

    /// Returns whether anything is left to do, now that the request in doubt got a reply after all.
    fn is_needed_after(&mut self, reply: &Reply) -> bool {
        match self {
            Self::SyncCount { in_doubt, .. } => {
                *in_doubt = None;
                true
            }
            Self::Release(_) => true,
            // A store that registers waiters has to learn that this one waits no longer, too.
            Self::Undo { .. } if planted!(LateGrantKept) => false,
            Self::Undo { subject, .. } => {
                subject.kind.registers_waiters(u32::MAX) || matches!(reply, Reply::Granted { .. })
            }
        }
    }

    fn on_reply(&self, reply: &Reply) {
        let (name, owner) = (self.name().clone(), *self.owner());
        let event = reply.clone();
        self.core().events.emit(Level::DEBUG, move || {
            tracing::debug!(target: "distlock::release", lock = ?name, %owner, reply = ?event, "cleaned up");
        });
        let subscribers = match reply {
            Reply::Released { subscribers } => Some(*subscribers),
            _ => None,
        };
        self.notify_waiters(subscribers);
        if let Self::Release(hold) = self {
            hold.on_gone_from_store(reply);
        }
    }

    fn notify_waiters(&self, subscribers: Option<u32>) {
        if let Self::Release(hold) = self {
            hold.core
                .wait_queues
                .on_released(hold, subscribers, hold.now());
        }
    }

    fn owner(&self) -> &OwnerId {
        match self {
            Self::SyncCount { hold, .. } | Self::Release(hold) => &hold.owner,
            Self::Undo { owner, .. } => owner,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        match self {
            Self::SyncCount { hold, .. } | Self::Release(hold) => &hold.subject.name,
            Self::Undo { subject, .. } => &subject.name,
        }
    }
}
