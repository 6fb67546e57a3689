//! The head of a line at work: it alone asks the store, and listens for everyone behind it.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::debug;

use super::acquire::Wish;
use super::ask::{Asked, Manner, ask};
use super::claim::Claim;
use super::clock::Sleeping;
use super::job::Job;
use super::seat::Turn;
use super::spot::Spot;
use super::trouble::LastFailure;
use super::{Core, Trouble, needs_a_runtime, no_answer};
use crate::engine::events::emit_in_call;
use crate::engine::{Failure, Listener};
use crate::protocol::acquire::{Acquire, Step};
use crate::protocol::lease::LostReason;
use crate::protocol::{Moment, OwnerId};

/// What came of it.
pub(super) enum Headed {
    Granted(Claim, Moment),
    Busy,
    Told(Turn),
}

/// One waiter at work.
pub(super) struct Attempt<'a> {
    core: &'a Arc<Core>,
    wish: &'a Wish,
    machine: Acquire,
    /// What it has asked already.
    asked: Option<Result<Asked, Failure>>,
    listener: Option<Arc<Listener>>,
    failure: LastFailure,
    /// Who it asks as; none while a request in that name may be under way.
    owner: Option<OwnerId>,
    /// Since when it waits.
    begun: Moment,
}

/// How long a reader waits behind writers. Those of other libraries may never be let in by readers of theirs.
const BEHIND_WRITERS: Duration = Duration::from_secs(60);

impl<'a> Attempt<'a> {
    pub(super) fn new(
        core: &'a Arc<Core>,
        wish: &'a Wish,
        begun: Moment,
        deadline: Option<Moment>,
        asked: Option<Result<Asked, Failure>>,
    ) -> Box<Self> {
        Box::new(Self {
            core,
            wish,
            machine: Acquire::new(wish.subject.kind, wish.hearing, deadline, core.fresh_seed()),
            asked,
            listener: None,
            failure: LastFailure::default(),
            owner: None,
            begun,
        })
    }

    /// Asks, listens and sleeps until it has the lock, is told otherwise, or time is over.
    pub(super) async fn at_the_head(
        &mut self,
        spot: &mut Spot<'_>,
        not_before: Option<Moment>,
    ) -> Result<Headed, Trouble> {
        if spot.is_seated() {
            self.machine.stood_in_line(spot.is_busy());
        }
        if self.asked.is_none()
            && let Some(listener) = spot.listener()
        {
            // The line hears already: what is asked from now on misses nothing.
            self.listener = Some(listener);
            self.machine.listening();
        }
        if not_before.is_some() {
            // Deaf on purpose: what we would hear is our own release.
            tokio::select! {
                biased;
                turn = spot.turn() => return Ok(Headed::Told(turn)),
                () = self.sleep(not_before) => {}
            }
        }
        let mut step = match self.asked {
            Some(_) => Step::Ask,
            None => self.machine.woken(self.core.clock.now()),
        };
        loop {
            needs_a_runtime().map_err(Trouble::Failure)?;
            step = match step {
                Step::Ask => {
                    let (asked, nudge) = match self.asked.take() {
                        Some(asked) => (asked, None),
                        None => match self.ask(spot).await {
                            Ok(asked) => asked,
                            Err(turn) => return Ok(Headed::Told(turn)),
                        },
                    };
                    let now = self.core.clock.now();
                    match asked {
                        Ok(Asked::Granted(claim, now)) => return Ok(Headed::Granted(claim, now)),
                        Ok(Asked::TooLate) => return Err(Trouble::Lost(LostReason::Expired)),
                        Ok(Asked::Busy { owner, ttl }) => {
                            self.owner = Some(owner);
                            self.failure.forget();
                            if self.listener.is_none() {
                                emit_in_call!(
                                    self.core.events,
                                    DEBUG,
                                    { name: debug(self.wish.subject.name.clone()), ttl: debug(ttl) },
                                    "waiting: somebody else holds it"
                                );
                            }
                            spot.sit(self.wish);
                            if self.wish.polls() && spot.has_listening_company() {
                                self.machine.listen_too();
                            }
                            spot.note(true);
                            if self.listener.as_ref().is_some_and(|ear| ear.is_dismissed()) {
                                self.listener = None;
                                spot.stop_listening();
                                self.machine.not_listening();
                            }
                            if self.owner_holds_it() {
                                return Ok(Headed::Told(Turn::Reenter));
                            }
                            let step = self.machine.busy(ttl, now);
                            match (nudge, step) {
                                (Some(again), Step::Sleep(_)) => return Ok(Headed::Told(again)),
                                (_, step) => step,
                            }
                        }
                        Err(failure) => {
                            self.core.usable()?;
                            spot.note(false);
                            let passing = failure.is_passing();
                            let next = self.machine.failed(passing, now);
                            self.failure.note(failure, next);
                            next
                        }
                    }
                }
                Step::Listen => {
                    let listening = tokio::select! {
                        biased;
                        turn = spot.turn() => return Ok(Headed::Told(turn)),
                        listening = self.listen(spot) => listening,
                    };
                    match listening {
                        Ok(listener) => {
                            self.listener = Some(listener);
                            let step = self.machine.listening();
                            if planted!(SubscribedTooLate) {
                                let kind = self.wish.subject.kind;
                                Step::Sleep(self.core.clock.now() + kind.longest_sleep())
                            } else {
                                step
                            }
                        }
                        Err(failure) if failure.is_passing() => {
                            emit_in_call!(
                                self.core.events,
                                DEBUG,
                                {
                                    name: debug(self.wish.subject.name.clone()),
                                    why: failure.detail.clone(),
                                },
                                "cannot listen; asking now and then"
                            );
                            self.machine.deaf(self.core.clock.now())
                        }
                        Err(failure) => return Err(Trouble::Failure(failure)),
                    }
                }
                Step::Sleep(until) => {
                    tokio::select! {
                        biased;
                        turn = spot.turn() => return Ok(Headed::Told(turn)),
                        () = self.core.wakeups.shielded(heard(self.listener.as_deref())) => {}
                        () = self.sleep(Some(until)) => {}
                    }
                    self.machine.woken(self.core.clock.now())
                }
                Step::Busy => return Ok(Headed::Busy),
                Step::TimedOut => return Err(self.failure.out_of_time()),
                Step::Fail => return Err(self.failure.fatal()),
            }
        }
    }

    /// Asks the store, and says whether we were told to ask again meanwhile. A lock that is passed to us
    /// first is taken instead; what is under way then is undone.
    async fn ask(
        &mut self,
        spot: &Spot<'_>,
    ) -> Result<(Result<Asked, Failure>, Option<Turn>), Turn> {
        let owner = self.owner.take();
        let owner = owner.unwrap_or_else(|| self.core.fresh_owner_for(self.wish));
        let sent = self.core.clock.now();
        let manner = Manner {
            past: sent.since(self.begun) >= BEHIND_WRITERS,
            ..self.wish.patiently()
        };
        let deadline = self.machine.deadline();
        let asking = ask(self.core, self.wish, owner, manner, sent, deadline);
        let mut asking = std::pin::pin!(asking);
        let mut nudge = None;
        loop {
            tokio::select! {
                biased;
                turn = spot.turn() => match turn {
                    Turn::Ask { .. } => nudge = Some(turn),
                    Turn::Closed | Turn::Lock(_) | Turn::Reenter => return Err(turn),
                },
                asked = &mut asking => return Ok((asked, nudge)),
            }
        }
    }

    /// The line's listener, or a new one; confirmed in either case.
    async fn listen(&self, spot: &Spot<'_>) -> Result<Arc<Listener>, Failure> {
        if let Some(listener) = spot.listener() {
            return Ok(listener);
        }
        let limit = self.core.limit(self.machine.deadline());
        let engine = self.core.engine.clone();
        let listening = engine.listen(self.wish.subject.channel());
        tokio::select! {
            listener = self.core.wakeups.shield(listening) => Ok(spot.keep(listener?)),
            () = self.sleep(Some(self.core.clock.now() + limit)) => Err(no_answer(limit)),
        }
    }

    /// Whether the lock is busy because this very owner has got it meanwhile.
    fn owner_holds_it(&self) -> bool {
        let Wish { subject, user, .. } = self.wish;
        user.is_some_and(|user| self.core.owners.find(user, subject).is_some())
    }

    fn sleep(&self, until: Option<Moment>) -> Sleeping<'_> {
        self.core.clock.sleep_until(until)
    }
}

/// Who waits no longer leaves nothing of that at the store.
impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let Wish { subject, terms, .. } = self.wish;
        if !self.wish.is_announced() || self.core.is_forked() {
            return;
        }
        let asked = match self.asked {
            Some(Ok(Asked::Busy { owner, .. })) => Some(owner),
            _ => None,
        };
        if let Some(owner) = self.owner.or(asked) {
            let leave = Job::leave(self.core, subject, owner, terms.lease);
            self.core.cleanup.push(leave);
        }
    }
}

async fn heard(listener: Option<&Listener>) {
    match listener {
        Some(listener) => listener.heard().await,
        None => std::future::pending().await,
    }
}
