//! Drives one acquisition: the machine in `protocol/acquire.rs` decides, this carries it out.

use std::sync::Arc;
use std::time::Duration;

use super::ask::{Asked, ask};
use super::hold::Claim;
use super::reenter::reenter;
use super::seat::Turn;
use super::spot::Spot;
use super::{Core, Trouble, needs_a_runtime, no_answer};
use crate::engine::{Failure, Listener};
use crate::protocol::acquire::{Acquire, Hearing, Step};
use crate::protocol::lease::{LostReason, Terms};
use crate::protocol::{Moment, OwnerId, Subject};

/// What a caller wants.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) subject: Subject,
    pub(crate) terms: Terms,
    pub(crate) hearing: Hearing,
    pub(crate) user: Option<u64>,
}

/// How long a caller waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// As long as it takes.
    Endless,
    /// Not at all.
    Once,
    /// This long, everything included.
    Within(Duration),
}

/// Gets the lock; `None` if somebody else has it and patience is over.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    wish: &Wish,
    patience: Patience,
) -> Result<Option<Claim>, Trouble> {
    core.usable()?;
    let begun = core.clock.now();
    let patience = match patience {
        Patience::Within(Duration::ZERO) => Patience::Once,
        patience => patience,
    };
    let deadline = match patience {
        Patience::Once | Patience::Endless => None,
        Patience::Within(wait) => Some(begun + wait),
    };
    let got = match reenter(core, wish, deadline).await? {
        Some(claim) => Some(claim),
        None if matches!(patience, Patience::Once) => match once(core, wish).await? {
            Some(claim) => Some(claim),
            // Perhaps this very owner has got it meanwhile: it is not busy for itself.
            None => reenter(core, wish, deadline).await?,
        },
        None => {
            let machine = Acquire::new(wish.hearing, deadline, core.fresh_seed());
            Attempt::new(core, wish, machine).run().await?
        }
    };
    let Some(claim) = got else {
        return Ok(None);
    };
    // A client that was closed meanwhile has given back what it knew of; not yet this.
    core.usable()?;
    let waited = core.clock.now().since(begun);
    tracing::debug!(name = ?wish.subject.name, owner = %claim.hold().owner, ?waited, "granted");
    Ok(Some(claim))
}

/// Asks the store itself, past the line: nobody is waited for.
async fn once(core: &Arc<Core>, wish: &Wish) -> Result<Option<Claim>, Trouble> {
    match ask(core, wish, core.fresh_owner(), None).await {
        Ok(Asked::Granted(claim)) => {
            core.waiters.granted(claim.hold());
            Ok(Some(claim))
        }
        Ok(Asked::TooLate) => Err(Trouble::Lost(LostReason::Expired)),
        Ok(Asked::Busy { .. }) => Ok(None),
        Err(failure) => Err(Trouble::Failure(failure)),
    }
}

/// One waiter at work.
struct Attempt<'a> {
    core: &'a Arc<Core>,
    wish: &'a Wish,
    machine: Acquire,
    listener: Option<Arc<Listener>>,
    failure: Option<Failure>,
    /// Who it asks as; none while a request in that name may be under way.
    owner: Option<OwnerId>,
}

impl<'a> Attempt<'a> {
    const fn new(core: &'a Arc<Core>, wish: &'a Wish, machine: Acquire) -> Self {
        Self {
            core,
            wish,
            machine,
            listener: None,
            failure: None,
            owner: None,
        }
    }

    async fn run(mut self) -> Result<Option<Claim>, Trouble> {
        let Wish {
            subject,
            terms,
            user,
            ..
        } = self.wish;
        let (mut spot, turn) = Spot::enter(self.core, subject, *terms, *user, self.polls());
        let mut turn = match turn {
            Some(turn) => turn,
            None => match self.wait_in_line(&spot).await? {
                Some(turn) => turn,
                None => return self.give_up(spot.is_busy()),
            },
        };
        loop {
            let not_before = match turn {
                Turn::Lock(claim) => return Ok(Some(claim)),
                Turn::Closed => return Err(Trouble::Closed),
                Turn::Reenter => {
                    let deadline = self.machine.deadline();
                    if let Some(claim) = reenter(self.core, self.wish, deadline).await? {
                        return Ok(Some(claim));
                    }
                    // It has ended meanwhile, and whoever is head asks.
                    if spot.is_head() {
                        turn = Turn::Ask { not_before: None };
                        continue;
                    }
                    match self.wait_in_line(&spot).await? {
                        Some(next) => turn = next,
                        None => return self.give_up(spot.is_busy()),
                    }
                    continue;
                }
                Turn::Ask { not_before } => not_before,
            };
            match self.at_the_head(&mut spot, not_before).await? {
                Headed::Granted(claim) => {
                    self.core.waiters.granted(claim.hold());
                    return Ok(Some(claim));
                }
                Headed::GaveUp { busy } => return self.give_up(busy),
                Headed::Told(next) => turn = next,
            }
        }
    }

    /// Sits until called; `None` when time is over.
    async fn wait_in_line(&self, spot: &Spot) -> Result<Option<Turn>, Trouble> {
        let deadline = self.machine.deadline();
        tokio::select! {
            biased;
            turn = spot.turn() => Ok(Some(turn)),
            () = self.sleep(deadline) => {
                needs_a_runtime().map_err(Trouble::Failure)?;
                Ok(None)
            }
        }
    }

    /// Asks, listens and sleeps until it has the lock, is told otherwise, or time is over.
    async fn at_the_head(
        &mut self,
        spot: &mut Spot,
        not_before: Option<Moment>,
    ) -> Result<Headed, Trouble> {
        if spot.is_seated() {
            self.machine.stood_in_line(spot.is_busy());
        }
        if let Some(listener) = spot.listener() {
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
        let mut step = self.machine.woken(self.core.clock.now());
        loop {
            needs_a_runtime().map_err(Trouble::Failure)?;
            step = match step {
                Step::Ask => {
                    let (asked, nudge) = match self.ask(spot).await {
                        Ok(asked) => asked,
                        Err(turn) => return Ok(Headed::Told(turn)),
                    };
                    let now = self.core.clock.now();
                    match asked {
                        Ok(Asked::Granted(claim)) => return Ok(Headed::Granted(claim)),
                        Ok(Asked::TooLate) => return Err(Trouble::Lost(LostReason::Expired)),
                        Ok(Asked::Busy { owner, ttl }) => {
                            self.owner = Some(owner);
                            if self.listener.is_none() {
                                tracing::debug!(name = ?self.wish.subject.name, ?ttl, "waiting: somebody else holds it");
                            }
                            spot.sit(self.wish.terms, self.wish.user, self.polls());
                            if self.polls() && spot.has_listening_company() {
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
                            spot.note(false);
                            let passing = failure.is_passing();
                            self.failure = Some(failure);
                            self.machine.failed(passing, now)
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
                            self.machine.listening()
                        }
                        Err(failure) if failure.is_passing() => {
                            tracing::debug!(name = ?self.wish.subject.name, why = failure.detail, "cannot listen; asking now and then");
                            self.machine.deaf(self.core.clock.now())
                        }
                        Err(failure) => return Err(Trouble::Failure(failure)),
                    }
                }
                Step::Sleep(until) => {
                    tokio::select! {
                        biased;
                        turn = spot.turn() => return Ok(Headed::Told(turn)),
                        () = heard(self.listener.as_deref()) => {}
                        () = self.sleep(Some(until)) => {}
                    }
                    self.machine.woken(self.core.clock.now())
                }
                Step::Busy => return Ok(Headed::GaveUp { busy: true }),
                Step::TimedOut => return Ok(Headed::GaveUp { busy: false }),
                Step::Fail => {
                    let failure = self.failure.take();
                    return Err(failure.map_or(Trouble::TimedOut, Trouble::Failure));
                }
            }
        }
    }

    /// Asks the store, and says whether we were told to ask again meanwhile. A lock that is passed to us
    /// first is taken instead; what is under way then is undone.
    async fn ask(&mut self, spot: &Spot) -> Result<(Result<Asked, Failure>, Option<Turn>), Turn> {
        let owner = self.owner.take();
        let owner = owner.unwrap_or_else(|| self.core.fresh_owner());
        let asking = ask(self.core, self.wish, owner, self.machine.deadline());
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
    async fn listen(&self, spot: &Spot) -> Result<Arc<Listener>, Failure> {
        if let Some(listener) = spot.listener() {
            return Ok(listener);
        }
        let limit = self.core.limit(self.machine.deadline());
        let engine = self.core.engine.clone();
        let listening = engine.listen(self.wish.subject.channel());
        tokio::select! {
            listener = listening => Ok(spot.keep(listener?)),
            () = self.sleep(Some(self.core.clock.now() + limit)) => Err(no_answer(limit)),
        }
    }

    const fn polls(&self) -> bool {
        matches!(self.wish.hearing, Hearing::Poll { .. })
    }

    /// Whether the lock is busy because this very owner has got it meanwhile.
    fn owner_holds_it(&self) -> bool {
        let Wish { subject, user, .. } = self.wish;
        user.is_some_and(|user| self.core.owners.find(user, subject).is_some())
    }

    fn give_up(&self, busy: bool) -> Result<Option<Claim>, Trouble> {
        if busy {
            return Ok(None);
        }
        Err(Trouble::TimedOut)
    }

    async fn sleep(&self, until: Option<Moment>) {
        sleep_until(self.core, until).await;
    }
}

pub(super) async fn sleep_until(core: &Core, until: Option<Moment>) {
    match until {
        Some(moment) => core.clock.sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

enum Headed {
    Granted(Claim),
    GaveUp { busy: bool },
    Told(Turn),
}

async fn heard(listener: Option<&Listener>) {
    match listener {
        Some(listener) => listener.heard().await,
        None => std::future::pending().await,
    }
}
