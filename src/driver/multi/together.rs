//! Several locks of one client, asked for in one step.

use std::sync::Arc;
use std::time::Duration;

use super::Part;
use crate::driver::ask::{Manner, request};
use crate::driver::claim::Claim;
use crate::driver::clock::within;
use crate::driver::hold::Hold;
use crate::driver::job::Job;
use crate::driver::seat::Turn;
use crate::driver::spot::Spot;
use crate::driver::unfinished::Unfinished;
use crate::driver::waiters::Asker;
use crate::driver::{Core, Trouble, TroubleWith, no_answer, unexpected};
use crate::engine::Before;
use crate::protocol::lease::LostReason;
use crate::protocol::{Moment, OwnerId, Reply};

/// What came of it.
pub(super) enum Together {
    /// It cannot be done in one step: they are to be asked for one by one.
    Cannot,
    /// These were granted, in this order, and the next was not, if there is one.
    Granted(Vec<Claim>),
}

/// Takes all of these or none, past the lines: nobody is waited for.
pub(super) async fn all_or_none(parts: &[&Part], limit: Duration) -> Result<Together, TroubleWith> {
    ask(parts, Vec::new(), Before::RolledBack, limit).await
}

/// Takes as many of these as can be had at once and in order, without going past anybody here who waits, or for whom this
/// client stands back.
pub(super) async fn as_many_as_are_free(
    parts: &[&Part],
    limit: Duration,
) -> Result<Together, TroubleWith> {
    let mut spots = Vec::new();
    for part in parts {
        match part.spot() {
            Some(spot) => spots.push(spot),
            None => break,
        }
    }
    if spots.len() < 2 {
        // Alone it asks as it always does.
        return Ok(Together::Cannot);
    }
    let parts = &parts[..spots.len()];
    ask(parts, spots, Before::Kept, limit).await
}

impl Part {
    /// The head of its line, if nobody else is there; none of its own for a lock whose line is the store's.
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

async fn ask(
    parts: &[&Part],
    spots: Vec<Option<Spot<'_>>>,
    before: Before,
    limit: Duration,
) -> Result<Together, TroubleWith> {
    let Some(core) = parts.first().map(|part| &part.core) else {
        return Ok(Together::Granted(Vec::new()));
    };
    let about = |place: usize, trouble: Trouble| {
        let part = parts.get(place).unwrap_or(&parts[0]);
        trouble.with(&part.wish.subject.name)
    };
    core.usable().map_err(|trouble| about(0, trouble))?;
    let owners: Vec<OwnerId> = parts
        .iter()
        .map(|part| core.fresh_owner_for(&part.wish))
        .collect();
    let undo = |place: usize| {
        let wish = &parts[place].wish;
        Job::undo(core, &wish.subject, owners[place], wish.terms.lease)
    };
    let asked = parts.iter().zip(&owners);
    let requests = asked.map(|(part, owner)| request(core, &part.wish, *owner, Manner::default()));
    let requests = requests.collect();
    let sent = core.clock.now();
    // Dropped, or without an answer, each of them is in doubt.
    let unfinished = Unfinished::new(core, || (0..parts.len()).map(undo));
    let Some(answer) = core.engine.call_all(requests, before) else {
        unfinished.settled();
        return Ok(Together::Cannot);
    };
    let answers = within(limit.min(core.settings.command_timeout), answer).await;
    let answers = answers.unwrap_or_else(|| vec![Err(no_answer(limit))]);
    let last = answers.len().saturating_sub(1);
    let granted = match answers.last() {
        Some(Ok(Reply::Granted { .. })) => answers.len(),
        Some(Ok(Reply::Busy { .. })) => match before {
            Before::Kept => last,
            Before::RolledBack => 0,
        },
        Some(Ok(other)) => return Err(about(last, Trouble::Failure(unexpected(other)))),
        Some(Err(failure)) => {
            // What was granted before it and kept is undone as well: whoever asked gets none.
            let nothing_kept = before == Before::RolledBack || last == 0;
            if !failure.leaves_doubt() && nothing_kept {
                unfinished.settled();
            }
            core.usable().map_err(|trouble| about(last, trouble))?;
            return Err(about(last, Trouble::Failure(failure.clone())));
        }
        None => 0,
    };
    let now = core.clock.now();
    let mut claims = Vec::with_capacity(granted);
    let mut spots = spots.into_iter();
    for (place, answer) in answers.iter().take(granted).enumerate() {
        let wish = &parts[place].wish;
        let token = match answer {
            Ok(Reply::Granted { token }) if token.is_some() || !wish.subject.kind.is_fenced() => {
                *token
            }
            Ok(other) => return Err(about(place, Trouble::Failure(unexpected(other)))),
            Err(failure) => return Err(about(place, Trouble::Failure(failure.clone()))),
        };
        core.tokens.note(token);
        let Some(claim) = Hold::granted(core, wish, owners[place], token, sent, now) else {
            return Err(about(place, Trouble::Lost(LostReason::Expired)));
        };
        enter(core, &claim, spots.next().flatten(), now);
        claims.push(claim);
    }
    unfinished.settled();
    core.usable().map_err(|trouble| about(0, trouble))?;
    Ok(Together::Granted(claims))
}

/// From now on those who wait here wait for this hold.
fn enter(core: &Arc<Core>, claim: &Claim, spot: Option<Spot<'_>>, now: Moment) {
    match spot {
        Some(spot) => spot.hold(claim.hold(), now),
        None => core.waiters.granted(claim.hold(), Asker::PastTheLine, now),
    }
}
