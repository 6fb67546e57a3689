//! One thing that cleanup has to finish.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tracing::Level;

use super::clock::within;
use super::hold::Hold;
use super::unfinished::UnderWay;
use super::{Core, no_answer};
use crate::engine::Failure;
use crate::engine::supervise::{caught, caught_now};
use crate::protocol::jitter::spread;
use crate::protocol::{Action, Entry, OwnerId, Reply, Request, Subject};

/// A store that has been silent for a lease and this long has nothing of ours any more.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often a job is begun anew after a panic.
const MOST_PANICS: u32 = 3;

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
    /// Take back an acquire from zero that nobody knows the outcome of; or leave the store's line, where every one was
    /// answered.
    Undo {
        core: Arc<Core>,
        subject: Subject,
        owner: OwnerId,
        lease: Duration,
        answered: bool,
        /// Who stands in the store's line for it, and leaves it, where that is another.
        place: Option<OwnerId>,
    },
}

impl Job {
    /// To take back what `owner` asked for with this lease.
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
            answered: false,
            place: None,
        }
    }

    /// To leave the store's line, where `owner` stood in it for a lock with this lease.
    pub(super) fn leave(
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
            answered: true,
            place: None,
        }
    }

    /// The same, and takes this one out of the store's line.
    pub(super) const fn leaving(mut self, who: Option<OwnerId>) -> Self {
        if let Self::Undo { place, .. } = &mut self {
            *place = who;
        }
        self
    }

    /// Does it. What it was about is then of no concern any more.
    pub(super) async fn finish(mut self, mut under_way: Option<UnderWay>, turns: &Semaphore) {
        let events = self.core().events.clone();
        let mut panics = 0;
        while let Err(panicked) = caught(self.work(under_way.take(), turns)).await {
            panics += 1;
            // Reported once, and not tried for ever: the lease ends it then.
            if panics == 1 {
                panicked.report("cleanup", &events);
            }
            if panics == MOST_PANICS {
                let told = caught_now(|| self.tell_waiters(None));
                drop(told);
                break;
            }
        }
        self.settle();
    }

    fn core(&self) -> &Arc<Core> {
        match self {
            Self::Recount { hold, .. } | Self::Release(hold) => &hold.core,
            Self::Undo { core, .. } => core,
        }
    }

    /// Sends until the store has answered, or has certainly forgotten by itself. What is still under way
    /// is heard out first: its answer may make this needless.
    async fn work(&mut self, under_way: Option<UnderWay>, turns: &Semaphore) {
        if let Some(under_way) = under_way
            && let Some(reply) = under_way.answer().await
            && !self.is_needed_after(&reply)
        {
            return;
        }
        let (core, lease) = match self {
            Self::Recount { hold, .. } | Self::Release(hold) => {
                (hold.core.clone(), hold.terms.lease)
            }
            Self::Undo { core, lease, .. } => (core.clone(), *lease),
        };
        let give_up_at = core.clock.now() + lease + PATIENCE;
        let mut pause = PAUSE;
        loop {
            // Not while it waits for an answer or rests: others could do their work meanwhile.
            let turn = turns.acquire().await;
            let attempt = self.attempt(&core).await;
            drop(turn);
            let failure = match attempt {
                Ok(()) => return,
                Err(failure) => failure,
            };
            if let Self::Release(hold) = self
                && failure.leaves_doubt()
            {
                hold.release_in_doubt();
            }
            // Whoever waits here must not wait for a store that does not answer us.
            self.tell_waiters(None);
            let gives_up = planted!(CleanupGivesUp) || core.clock.now() >= give_up_at;
            if !failure.may_be_mended() || gives_up {
                let (name, owner, why) = (self.name().clone(), *self.owner(), failure.detail);
                core.events.emit(Level::WARN, move || {
                    tracing::warn!(?name, %owner, why, "could not clean up; the lease will");
                });
                return;
            }
            // Not all at the same instant, where many lost the same server.
            let rest = pause / 2 + spread(pause / 2, core.fresh_seed());
            core.clock.sleep_until(Some(core.clock.now() + rest)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&self, core: &Core) -> Result<(), Failure> {
        let limit = core.settings.command_timeout;
        // Held while the store is asked: a re-entry meanwhile would change the count we send. But one
        // that nobody polls would keep it for ever.
        let _order = match self {
            Self::Recount { hold, .. } => within(limit, Box::pin(hold.recount().lock())).await,
            Self::Release(_) | Self::Undo { .. } => None,
        };
        let Some((request, _)) = self.request() else {
            return Ok(());
        };
        let requests = std::iter::once(request).chain(self.parting()).collect();
        let answer = core.engine.clone().call_apart(requests);
        let Some(replies) = within(limit, answer).await else {
            return Err(no_answer(limit));
        };
        for reply in replies {
            self.done(&reply?);
        }
        Ok(())
    }

    /// The same, where the store answers on the spot.
    pub(super) fn finish_now(self) {
        if let Some((_, Some(Ok(reply)))) = self.request() {
            self.done(&reply);
        }
        if let (Self::Undo { core, .. }, Some(leave)) = (&self, self.parting()) {
            // It fails if something else lives under that name, and so does its line.
            let _ = core.engine.call_now(&leave, &|| core.clock.now());
        }
        self.settle();
    }

    /// What takes another out of the store's line.
    fn parting(&self) -> Option<Request> {
        let Self::Undo {
            subject,
            place: Some(owner),
            ..
        } = self
        else {
            return None;
        };
        let (owner, left) = (*owner, 0);
        Some(subject.request(Action::Release { owner, left }))
    }

    /// Nothing more is done: whoever waits for its outcome hears so. Where the store remembers what was done, it need not any more.
    fn settle(&self) {
        let (core, subject) = match self {
            Self::Recount { hold, .. } => (&hold.core, &hold.subject),
            Self::Release(hold) => {
                // Unless the store has answered.
                hold.release_given_up();
                (&hold.core, &hold.subject)
            }
            Self::Undo { core, subject, .. } => (core, subject),
        };
        if subject.kind.is_nobodys() {
            core.settle_deed(subject, *self.owner());
        }
    }

    /// What to send now, and what a store has said to it that answers on the spot; nothing if the hold is
    /// over and its release goes its own way.
    fn request(&self) -> Option<(Request, Option<Result<Reply, Failure>>)> {
        let (core, request) = match self {
            Self::Recount { hold, in_doubt } => {
                return hold.counted(|state| {
                    let (owner, count) = (hold.owner, state.lease.count());
                    if state.lease.end().is_some() || count == 0 {
                        return None;
                    }
                    Some(match *in_doubt {
                        Some(attempt) => Action::Undo {
                            owner,
                            entry: Entry::Again { attempt, count },
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
                answered,
                ..
            } => {
                let owner = *owner;
                let undo = match answered {
                    true => Action::Release { owner, left: 0 },
                    false => Action::Undo {
                        owner,
                        entry: Entry::First,
                    },
                };
                (core, subject.request(undo))
            }
        };
        let answer = core.engine.call_now(&request, &|| core.clock.now());
        Some((request, answer))
    }

    /// Whether there is anything left to do, now that the request in doubt has been answered after all.
    fn is_needed_after(&mut self, reply: &Reply) -> bool {
        match self {
            Self::Recount { in_doubt, .. } => {
                *in_doubt = None;
                true
            }
            Self::Release(_) => true,
            // Where the store knows who waits, it is to be told of that, too.
            Self::Undo { .. } if planted!(LateGrantKept) => false,
            Self::Undo { subject, .. } => {
                subject.kind.is_announced(u32::MAX) || matches!(reply, Reply::Granted { .. })
            }
        }
    }

    fn done(&self, reply: &Reply) {
        let (name, owner) = (self.name().clone(), *self.owner());
        let event = reply.clone();
        self.core().events.emit(Level::DEBUG, move || {
            tracing::debug!(?name, %owner, reply = ?event, "cleaned up");
        });
        let listeners = match reply {
            Reply::Released { listeners } => Some(*listeners),
            _ => None,
        };
        self.tell_waiters(listeners);
        if let Self::Release(hold) = self {
            hold.has_left(reply);
        }
    }

    fn tell_waiters(&self, listeners: Option<u32>) {
        if let Self::Release(hold) = self {
            hold.core.waiters.vacate(hold, listeners, hold.now());
        }
    }

    fn owner(&self) -> &OwnerId {
        match self {
            Self::Recount { hold, .. } | Self::Release(hold) => &hold.owner,
            Self::Undo { owner, .. } => owner,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        match self {
            Self::Recount { hold, .. } | Self::Release(hold) => &hold.subject.name,
            Self::Undo { subject, .. } => &subject.name,
        }
    }
}
