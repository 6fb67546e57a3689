//! Requests for several locks that are sent together, without a wait for the replies between them.

use super::Part;
use crate::driver::acquire::{Patience, acquire};
use crate::driver::ask::{Asked, Manner, ask};
use crate::driver::at_once::at_once;
use crate::driver::claim::Claim;
use crate::driver::seat::Turn;
use crate::driver::spot::Spot;
use crate::driver::waiters::Asker;
use crate::driver::{Trouble, TroubleWith};
use crate::protocol::Moment;
use crate::protocol::lease::LostReason;

/// The most locks that one caller asks for without a reply: if the first of them is busy, the others are taken in vain.
pub(super) const WINDOW: usize = 64;

/// The result of a group of attempts.
pub(super) struct Attempts {
    /// The locks that were granted up to the first that was not, in order.
    pub(super) granted: Vec<Claim>,
    /// The locks that were granted behind it, which are to be released.
    pub(super) beyond: Vec<Claim>,
}

/// Tries to acquire all of these, past the queues of this client.
pub(super) async fn try_all(parts: &[&Part]) -> Result<Attempts, TroubleWith> {
    let Some(first) = parts.first() else {
        return split(Vec::new());
    };
    let wakeups = first.core.wakeups.clone();
    let attempts = parts.iter().map(|part| async move {
        let got = acquire(&part.core, &part.wish, Patience::Once).await;
        got.map_err(|trouble| part.with(trouble))
    });
    split(at_once(&wakeups, attempts).await)
}

/// Tries to acquire as many of these as no other caller of this client waits for, up to the first that one does. `None` if those
/// are fewer than two: a lock alone is acquired as always.
pub(super) async fn try_unwaited(
    parts: &[&Part],
    deadline: impl Fn(&Part) -> Option<Moment> + Send + Sync,
) -> Result<Option<Attempts>, TroubleWith> {
    let spots: Vec<_> = parts.iter().map_while(|part| part.spot()).collect();
    if spots.len() < 2 {
        return Ok(None);
    }
    let deadline = &deadline;
    let wakeups = parts[0].core.wakeups.clone();
    let attempts = parts.iter().zip(spots).map(|(part, spot)| async move {
        let got = first_attempt(part, spot, deadline(part)).await;
        got.map_err(|trouble| part.with(trouble))
    });
    split(at_once(&wakeups, attempts).await).map(Some)
}

/// Keeps the grants up to the first refusal apart from those behind it. An error drops all of them, which releases them.
fn split(attempts: Vec<Result<Option<Claim>, TroubleWith>>) -> Result<Attempts, TroubleWith> {
    let attempts = attempts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut attempts = attempts.into_iter();
    let granted = attempts.by_ref().map_while(|claim| claim).collect();
    let beyond = attempts.flatten().collect();
    Ok(Attempts { granted, beyond })
}

async fn first_attempt(
    part: &Part,
    spot: Option<Spot<'_>>,
    deadline: Option<Moment>,
) -> Result<Option<Claim>, Trouble> {
    let Part { core, wish } = part;
    core.usable()?;
    let owner = core.fresh_owner_for(wish);
    let asked = ask(
        core,
        wish,
        owner,
        Manner::default(),
        core.clock.now(),
        deadline,
    );
    match asked.await {
        Ok(Asked::Granted(claim, now)) => {
            // From now on waiters of this client wait for this hold.
            match spot {
                Some(spot) => spot.hold(claim.hold(), now),
                None => core.waiters.granted(claim.hold(), Asker::PastTheLine, now),
            }
            core.usable()?;
            Ok(Some(claim))
        }
        Ok(Asked::Busy { .. }) => Ok(None),
        Ok(Asked::TooLate) => Err(Trouble::Lost(LostReason::Expired)),
        Err(failure) => {
            core.usable()?;
            Err(Trouble::Failure(failure))
        }
    }
}

impl Part {
    /// The head of its queue, if no other caller of this client is there; none of its own for a lock whose queue is the store's.
    fn spot(&self) -> Option<Option<Spot<'_>>> {
        let Self { core, wish } = self;
        if wish.subject.kind.has_line() {
            return Some(None);
        }
        if core.other_side(wish).is_some() {
            return None;
        }
        let (spot, turn) = Spot::enter(core, wish, core.clock.now());
        matches!(turn, Some(Turn::Ask { not_before: None })).then_some(Some(spot))
    }
}
