//! Drives one acquisition: the machine in `protocol/acquire.rs` decides, this carries it out.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::{debug, display};

use super::ask::{Asked, Manner, ask, ask_now};
use super::claim::Claim;
use super::head::{Attempt, Headed};
use super::owners::User;
use super::queue::queue;
use super::reenter::reenter;
use super::seat::Turn;
use super::spot::Spot;
use super::waiters::Asker;
use super::{Core, Trouble, needs_a_runtime};
use crate::engine::Failure;
use crate::engine::events::emit_in_call;
use crate::protocol::acquire::Hearing;
use crate::protocol::lease::{LostReason, Terms};
use crate::protocol::{Kind, Moment, OwnerId, Subject, Wanted};

/// What a caller wants.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) subject: Subject,
    pub(crate) terms: Terms,
    pub(crate) hearing: Hearing,
    pub(crate) user: Option<User>,
    /// A hold on the other side of a read/write lock, for whose sake it is granted.
    pub(crate) beside: Option<OwnerId>,
    /// How many it wants, where there are many.
    pub(crate) permits: Wanted,
}

impl Wish {
    /// Whether it asks now and then instead of listening.
    pub(super) const fn polls(&self) -> bool {
        matches!(self.hearing, Hearing::Poll { .. })
    }

    /// Whether the store knows that it waits.
    pub(super) const fn is_announced(&self) -> bool {
        self.subject.kind.is_announced(self.permits.count)
    }

    /// How one asks who is going to wait.
    pub(super) fn patiently(&self) -> Manner {
        let kind = self.subject.kind;
        Manner {
            waits: self.is_announced().then_some(kind.longest_sleep() * 3),
            past: false,
        }
    }
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

impl Patience {
    pub(crate) const fn within(wait: Duration) -> Self {
        if wait.is_zero() {
            return Self::Once;
        }
        Self::Within(wait)
    }

    /// Until when, for who has begun then. Who only tries has none: it asks once, however long that takes.
    pub(super) fn deadline(self, begun: Moment) -> Option<Moment> {
        match self {
            Self::Once | Self::Endless => None,
            Self::Within(wait) => Some(begun + wait),
        }
    }
}

/// Gets the lock; `None` if somebody else has it and patience is over.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice"
)]
pub(crate) fn acquire(
    core: &Arc<Core>,
    wish: &Wish,
    patience: Patience,
) -> impl Future<Output = Result<Option<Claim>, Trouble>> + Send {
    async move {
        // A store that answers on the spot must not keep other tasks from running. Before the clock is
        // read: this may take as long as they like.
        tokio::task::coop::consume_budget().await;
        core.usable()?;
        // Read seldom: on the shortest way the clock would be most of the work.
        let begun = core.clock.now();
        let deadline = patience.deadline(begun);
        let mut got = reenter(core, wish, deadline).await?;
        let beside = got.is_none() && core.other_side(wish).is_some();
        if beside {
            // Past the line: behind a stranger it would wait for itself.
            got = Box::pin(once(core, wish, begun, None)).await?;
            let waits = !matches!(patience, Patience::Once);
            if got.is_none() && waits && wish.subject.kind == Kind::Write {
                return Err(Trouble::WouldDeadlock);
            }
        }
        if got.is_none() {
            got = match patience {
                Patience::Once if beside => None,
                Patience::Once => Box::pin(once(core, wish, begun, None)).await?,
                Patience::Endless | Patience::Within(_) if wish.subject.kind.has_line() => {
                    Box::pin(queue(core, wish, deadline)).await?
                }
                Patience::Endless | Patience::Within(_) => {
                    wait(core, wish, deadline, begun).await?
                }
            };
        }
        if let Some(claim) = &got {
            // A client that was closed meanwhile has given back what it knew of; not yet this. And what
            // came before a fork came to two processes.
            core.usable()?;
            emit_in_call!(
                core.events,
                DEBUG,
                {
                    name: debug(wish.subject.name.clone()),
                    owner: display(claim.hold().owner),
                    waited: debug(core.clock.now().since(begun)),
                },
                "granted"
            );
        }
        Ok(got)
    }
}

/// Takes the other side of a read/write lock for the holder of one, if the store lets it; `None` if others read.
pub(crate) async fn beside(core: &Arc<Core>, wish: &Wish) -> Result<Option<Claim>, Trouble> {
    core.usable()?;
    match reenter(core, wish, None).await? {
        Some(claim) => Ok(Some(claim)),
        None => once(core, wish, core.clock.now(), None).await,
    }
}

/// Asks the store itself, past the line: nobody is waited for.
pub(super) async fn once(
    core: &Arc<Core>,
    wish: &Wish,
    now: Moment,
    deadline: Option<Moment>,
) -> Result<Option<Claim>, Trouble> {
    let owner = core.fresh_owner_for(wish);
    let asked = tokio::select! {
        biased;
        asked = ask(core, wish, owner, Manner::default(), now, deadline) => asked,
        () = core.closed() => return Err(Trouble::Closed),
    };
    match asked {
        Ok(Asked::Granted(claim, now)) => {
            core.waiters.granted(claim.hold(), Asker::PastTheLine, now);
            Ok(Some(claim))
        }
        Ok(Asked::TooLate) => Err(Trouble::Lost(LostReason::Expired)),
        // Perhaps this very owner has got it meanwhile: it is not busy for itself.
        Ok(Asked::Busy { .. }) => reenter(core, wish, deadline).await,
        Err(_) if planted!(SilenceMeansBusy) => Ok(None),
        Err(failure) => {
            core.usable()?;
            Err(Trouble::Failure(failure))
        }
    }
}

/// Waits for its turn. Short, because ten thousand may stand here: what only the head needs is in a box.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice"
)]
fn wait(
    core: &Arc<Core>,
    wish: &Wish,
    deadline: Option<Moment>,
    begun: Moment,
) -> impl Future<Output = Result<Option<Claim>, Trouble>> + Send {
    async move {
        let (mut spot, turn) = Spot::enter(core, wish, begun);
        let mut attempt = None;
        let mut turn = match turn {
            Some(Turn::Ask { not_before: None }) => {
                // Nobody is there but us, most often.
                let owner = core.fresh_owner_for(wish);
                let manner = wish.patiently();
                let asked = match ask_now(core, wish, owner, manner, begun) {
                    Some(asked) => asked,
                    None => Box::pin(first_ask(core, wish, owner, begun, deadline)).await?,
                };
                match asked {
                    Ok(Asked::Granted(claim, now)) => {
                        spot.hold(claim.hold(), now);
                        return Ok(Some(claim));
                    }
                    asked => {
                        // From here on it leaves what the store knows of it when it goes.
                        attempt = Some(Attempt::new(core, wish, begun, deadline, Some(asked)));
                        if core.is_closed() {
                            return Err(Trouble::Closed);
                        }
                    }
                }
                Turn::Ask { not_before: None }
            }
            Some(turn) => turn,
            None => match spot.in_line(deadline).await {
                Some(turn) => turn,
                None => return out_of_time(&spot),
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
                    if let Some(claim) = reenter(core, wish, deadline).await? {
                        return Ok(Some(claim));
                    }
                    // It has ended meanwhile, and whoever is head asks.
                    if spot.is_head() {
                        turn = Turn::Ask { not_before: None };
                        continue;
                    }
                    match spot.in_line(deadline).await {
                        Some(next) => turn = next,
                        None => return out_of_time(&spot),
                    }
                    continue;
                }
                Turn::Ask { not_before } => not_before,
            };
            let head =
                attempt.get_or_insert_with(|| Attempt::new(core, wish, begun, deadline, None));
            match Box::pin(head.at_the_head(&mut spot, not_before)).await? {
                Headed::Granted(claim, now) => {
                    spot.hold(claim.hold(), now);
                    return Ok(Some(claim));
                }
                Headed::Busy => return Ok(None),
                Headed::Told(next) => turn = next,
            }
        }
    }
}

/// Asks before anything is known of the lock.
async fn first_ask(
    core: &Arc<Core>,
    wish: &Wish,
    owner: OwnerId,
    sent: Moment,
    deadline: Option<Moment>,
) -> Result<Result<Asked, Failure>, Trouble> {
    tokio::select! {
        biased;
        asked = ask(core, wish, owner, wish.patiently(), sent, deadline) => Ok(asked),
        () = core.closed() => Err(Trouble::Closed),
    }
}

/// Time is over in the line, or it cannot be told.
fn out_of_time(spot: &Spot<'_>) -> Result<Option<Claim>, Trouble> {
    needs_a_runtime().map_err(Trouble::Failure)?;
    match spot.is_busy() {
        true => Ok(None),
        false => Err(Trouble::TimedOut(None)),
    }
}
