//! Drives one acquisition: the machine in `protocol/acquire.rs` decides, this carries it out.

use std::sync::Arc;
use std::time::Duration;

use super::ask::{Asked, ask, ask_now};
use super::clock::Sleeping;
use super::head::Headed;
use super::hold::Claim;
use super::reenter::reenter;
use super::seat::Turn;
use super::spot::Spot;
use super::waiters::Asker;
use super::{Core, Trouble, needs_a_runtime};
use crate::engine::{Failure, Listener};
use crate::protocol::acquire::{Acquire, Hearing};
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
    // Read seldom: on the shortest way the clock would be most of the work.
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
        None if matches!(patience, Patience::Once) => {
            match Box::pin(once(core, wish, begun)).await? {
                Some(claim) => Some(claim),
                // Perhaps this very owner has got it meanwhile: it is not busy for itself.
                None => reenter(core, wish, deadline).await?,
            }
        }
        None => {
            let machine = Acquire::new(wish.hearing, deadline, core.fresh_seed());
            let mut attempt = Attempt::new(core, wish, machine, begun);
            attempt.run().await?
        }
    };
    let Some(claim) = got else {
        return Ok(None);
    };
    // A client that was closed meanwhile has given back what it knew of; not yet this.
    if core.is_closed() {
        return Err(Trouble::Closed);
    }
    tracing::debug!(
        name = ?wish.subject.name,
        owner = %claim.hold().owner,
        waited = ?core.clock.now().since(begun),
        "granted"
    );
    Ok(Some(claim))
}

/// Asks the store itself, past the line: nobody is waited for.
async fn once(core: &Arc<Core>, wish: &Wish, now: Moment) -> Result<Option<Claim>, Trouble> {
    match ask(core, wish, core.fresh_owner(), now, None).await {
        Ok(Asked::Granted(claim, now)) => {
            core.waiters.granted(claim.hold(), Asker::PastTheLine, now);
            Ok(Some(claim))
        }
        Ok(Asked::TooLate) => Err(Trouble::Lost(LostReason::Expired)),
        Ok(Asked::Busy { .. }) => Ok(None),
        Err(failure) => Err(Trouble::Failure(failure)),
    }
}

/// One waiter at work.
pub(super) struct Attempt<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(super) wish: &'a Wish,
    pub(super) machine: Acquire,
    pub(super) listener: Option<Arc<Listener>>,
    pub(super) failure: Option<Failure>,
    /// Who it asks as; none while a request in that name may be under way.
    pub(super) owner: Option<OwnerId>,
    /// When the clock was last looked at.
    now: Moment,
}

impl<'a> Attempt<'a> {
    const fn new(core: &'a Arc<Core>, wish: &'a Wish, machine: Acquire, now: Moment) -> Self {
        Self {
            core,
            wish,
            machine,
            listener: None,
            failure: None,
            owner: None,
            now,
        }
    }

    async fn run(&mut self) -> Result<Option<Claim>, Trouble> {
        let Wish {
            subject,
            terms,
            user,
            ..
        } = self.wish;
        let polls = self.polls();
        let (mut spot, turn) = Spot::enter(self.core, subject, *terms, *user, polls, self.now);
        let mut first = None;
        let mut turn = match turn {
            Some(Turn::Ask { not_before: None }) => {
                // Nobody is there but us, most often. A store that answers on the spot must not keep
                // other tasks from running.
                tokio::task::coop::consume_budget().await;
                let owner = self.core.fresh_owner();
                let asked = match ask_now(self.core, self.wish, owner, self.now) {
                    Some(asked) => asked,
                    // Boxed, as everything but standing in line is: that is what ten thousand do.
                    None => Box::pin(self.first_ask(owner)).await?,
                };
                match asked {
                    Ok(Asked::Granted(claim, now)) => {
                        spot.hold(claim.hold(), now);
                        return Ok(Some(claim));
                    }
                    _ if self.core.is_closed() => return Err(Trouble::Closed),
                    asked => first = Some(asked),
                }
                Turn::Ask { not_before: None }
            }
            Some(turn) => turn,
            None => match self.wait_in_line(&spot).await? {
                Some(turn) => turn,
                None => return self.give_up(spot.is_busy()),
            },
        };
        loop {
            let not_before = match turn {
                Turn::Lock(claim) => {
                    spot.taken();
                    return Ok(Some(claim));
                }
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
            let headed = Box::pin(self.at_the_head(&mut spot, not_before, first.take()));
            match headed.await? {
                Headed::Granted(claim, now) => {
                    spot.hold(claim.hold(), now);
                    return Ok(Some(claim));
                }
                Headed::GaveUp { busy } => return self.give_up(busy),
                Headed::Told(next) => turn = next,
            }
        }
    }

    /// Asks before anything is known of the lock.
    async fn first_ask(&self, owner: OwnerId) -> Result<Result<Asked, Failure>, Trouble> {
        let deadline = self.machine.deadline();
        tokio::select! {
            biased;
            asked = ask(self.core, self.wish, owner, self.now, deadline) => Ok(asked),
            () = self.core.closed() => Err(Trouble::Closed),
        }
    }

    /// Sits until called; `None` when time is over.
    async fn wait_in_line(&self, spot: &Spot<'_>) -> Result<Option<Turn>, Trouble> {
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

    pub(super) const fn polls(&self) -> bool {
        matches!(self.wish.hearing, Hearing::Poll { .. })
    }

    /// Whether the lock is busy because this very owner has got it meanwhile.
    pub(super) fn owner_holds_it(&self) -> bool {
        let Wish { subject, user, .. } = self.wish;
        user.is_some_and(|user| self.core.owners.find(user, subject).is_some())
    }

    fn give_up(&self, busy: bool) -> Result<Option<Claim>, Trouble> {
        if busy {
            return Ok(None);
        }
        Err(Trouble::TimedOut)
    }

    pub(super) fn sleep(&self, until: Option<Moment>) -> Sleeping<'_> {
        self.core.clock.sleep_until(until)
    }
}
