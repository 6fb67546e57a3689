//! The semaphore that only counts, Redisson's `RSemaphore`: who has permits is not known, and nobody takes them back.
//!
//! Who wants several at once and has to wait stands in a line, as for the [other semaphore](super::semaphore), and until it
//! has had its turn nobody of ours goes past it.

use std::time::Duration;

use super::deeds::{Deed, Deeds, Effect};
use super::line::Line;
use super::number::{Alter, GREATEST, counted, inspected};
use super::state::{Outcome, Surroundings};
use super::{Action, Moment, OwnerId, Reply, Request};

/// Decides one request to the semaphore.
pub fn apply(
    there: &mut Option<i64>,
    deeds: &mut Deeds,
    line: &mut dyn Line,
    request: &Request,
    around: &Surroundings,
) -> Outcome {
    let mut semaphore = Counting {
        there,
        deeds,
        line,
        now: around.now,
        news: false,
    };
    let mut reply = semaphore.decide(&request.action);
    // Where there is nothing to have nobody is told.
    let news = semaphore.news && semaphore.there.is_some_and(|there| there > 0);
    if let Reply::Released { listeners } = &mut reply
        && news
    {
        *listeners = around.listeners;
    }
    Outcome {
        reply: Ok(reply),
        news: news.then(|| request.subject.channel()),
    }
}

struct Counting<'a> {
    there: &'a mut Option<i64>,
    deeds: &'a mut Deeds,
    line: &'a mut dyn Line,
    now: Moment,
    /// Whether it may be worth asking again.
    news: bool,
}

impl Counting<'_> {
    fn decide(&mut self, action: &Action) -> Reply {
        match action {
            Action::Alter { deed, change } => match (self.deeds.known(deed.id), *change) {
                (Some(effect), _) => effect.into(),
                (
                    None,
                    Alter::Take {
                        place,
                        count,
                        waits,
                    },
                ) => self.take(*deed, place, count, waits),
                (None, change) => self.alter(*deed, change),
            },
            Action::Count(_) => counted(*self.there),
            Action::Inspect => inspected(*self.there),
            // Nobody is known to have any.
            Action::ForceRelease => Reply::Forced(false),
            Action::Release { owner, left: 0 } => self.give_back(*owner).unwrap_or_else(|| {
                self.news |= self.line.leave(owner);
                Reply::Gone
            }),
            Action::Undo { owner, .. } => self.give_back(*owner).unwrap_or_else(|| {
                self.deeds.undo(*owner, self.now);
                Reply::Marked
            }),
            Action::Acquire { .. }
            | Action::Pass { .. }
            | Action::Release { .. }
            | Action::Renew { .. } => Reply::Gone,
        }
    }

    fn take(&mut self, deed: Deed, place: OwnerId, count: u32, waits: Option<Duration>) -> Reply {
        let first = self.line.first_at(self.now);
        if first.is_none_or(|first| first == place)
            && let Some(there) = self.there
            && *there >= i64::from(count)
        {
            *there -= i64::from(count);
            self.deeds.note(deed, Effect::Took(count), self.now);
            // Who stands behind it may find enough for itself.
            self.news |= self.line.leave(&place);
            return Reply::Granted { token: None };
        }
        if let Some(waits) = waits {
            self.line.stand(place, self.now + waits);
        }
        Reply::Busy { ttl: None }
    }

    fn alter(&mut self, deed: Deed, change: Alter) -> Reply {
        let before = *self.there;
        let now = before.unwrap_or(0);
        let after = match change {
            Alter::Add(more) => now
                .checked_add(more)
                .filter(|sum| (-GREATEST..=GREATEST).contains(sum))
                .map_or(before, Some),
            // Fewer than none are not drained: that would make some up.
            Alter::Drain => before.map(|there| there.min(0)),
            Alter::Forget => None,
            Alter::Set(to) => Some(to),
            Alter::SetOnce(to) => before.or(Some(to)),
            // That is a latch's.
            Alter::CountDown | Alter::Take { .. } => before,
        };
        *self.there = after;
        self.news |= after.is_some_and(|after| after > now);
        let effect = Effect::Altered(before, after);
        self.deeds.note(deed, effect, self.now);
        effect.into()
    }

    /// Gives back what a request took, if it took any and is not known to have had its answer.
    fn give_back(&mut self, id: OwnerId) -> Option<Reply> {
        let Some(Effect::Took(count)) = self.deeds.known(id) else {
            return None;
        };
        self.deeds.undo(id, self.now);
        // A semaphore that was forgotten is not made anew for that.
        if let Some(there) = self.there {
            *there = (*there + i64::from(count)).min(GREATEST);
            self.news = true;
        }
        Some(Reply::Released { listeners: 0 })
    }
}
