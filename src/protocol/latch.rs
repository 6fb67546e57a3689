//! The latch, Redisson's `RCountDownLatch`: a count that goes down, and those who wait until it has gone.

use super::deeds::{Deed, Deeds, Effect};
use super::number::{Alter, counted, inspected};
use super::state::{Outcome, Surroundings};
use super::{Action, Reply, Request};

/// Decides one request to the latch.
pub fn apply(
    left: &mut Option<i64>,
    deeds: &mut Deeds,
    request: &Request,
    around: &Surroundings,
) -> Outcome {
    let (reply, news) = match &request.action {
        Action::Alter { deed, change } => match deeds.known(deed.id) {
            Some(effect) => (effect.into(), false),
            None => alter(left, deeds, *deed, *change, around),
        },
        Action::Undo { owner, .. } => {
            deeds.undo(*owner, around.now);
            (Reply::Marked, false)
        }
        Action::Count(_) => (counted(*left), false),
        Action::Inspect => (inspected(*left), false),
        // Nobody has anything of it.
        Action::ForceRelease => (Reply::Forced(false), false),
        Action::Acquire { .. }
        | Action::Pass { .. }
        | Action::Release { .. }
        | Action::Renew { .. } => (Reply::Gone, false),
    };
    Outcome {
        reply: Ok(reply),
        news: news.then(|| request.subject.channel()),
    }
}

fn alter(
    left: &mut Option<i64>,
    deeds: &mut Deeds,
    deed: Deed,
    change: Alter,
    around: &Surroundings,
) -> (Reply, bool) {
    let before = *left;
    let after = match change {
        Alter::CountDown => before.map(|left| left - 1).filter(|left| *left > 0),
        Alter::Forget => None,
        Alter::SetOnce(count) => before.or(Some(count)),
        // Those are a semaphore's.
        Alter::Add(_) | Alter::Drain | Alter::Set(_) | Alter::Take { .. } => before,
    };
    *left = after;
    let effect = Effect::Altered(before, after);
    deeds.note(deed, effect, around.now);
    // It is there, or has gone; but below one there was nobody left to wait for it.
    let counted_below = change == Alter::CountDown && before.is_some_and(|left| left < 1);
    let news = before.is_some() != after.is_some() && !counted_below;
    (effect.into(), news)
}
