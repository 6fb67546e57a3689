//! One question to the store: may we have the lock?

use std::sync::Arc;
use std::time::Duration;

use super::acquire::Wish;
use super::claim::Claim;
use super::hold::Hold;
use super::job::Job;
use super::unfinished::Unfinished;
use super::{Core, unexpected};
use crate::engine::Failure;
use crate::protocol::{Action, Alter, Deed, Entry, Moment, OwnerId, Reply, Request};

/// What the store made of one request.
pub(super) enum Asked {
    /// Somebody else has it, for this long. Nothing of this owner is left at the store.
    Busy {
        owner: OwnerId,
        ttl: Option<Duration>,
    },
    /// It is ours, as of a moment ago.
    Granted(Claim, Moment),
    /// Granted, but the lease ran out before we heard of it.
    TooLate,
}

/// How a waiter asks: what the store is to know of it beside what it wants.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// How long it is believed to wait, where the store knows who does.
    pub(super) waits: Option<Duration>,
    /// Past writers that wait, if it is a reader.
    pub(super) past: bool,
}

/// One request from zero. Dropping it, or losing its reply, has it undone, and its owner is not to be used
/// again; a busy lock's answer brings the owner back. It is `sent` now or has been a moment ago: the store's
/// clock starts no earlier.
pub(super) async fn ask(
    core: &Arc<Core>,
    wish: &Wish,
    owner: OwnerId,
    manner: Manner,
    sent: Moment,
    deadline: Option<Moment>,
) -> Result<Asked, Failure> {
    let asker = Asker::new(core, wish, owner);
    let undo = || [undo(core, wish, asker)];
    let mut unfinished = Unfinished::new(core, undo);
    let request = asker.request(core, wish, manner);
    let reply = match unfinished.ask(request, deadline).await {
        Ok(reply) => reply,
        Err(failure) => {
            // Where the store knows who waits it may know of this one since before.
            if !failure.leaves_doubt() && !wish.is_announced() {
                unfinished.settled();
                asker.settled(core, wish);
            }
            return Err(failure);
        }
    };
    let asked = understand(core, wish, asker, sent, core.clock.now(), &reply);
    if matches!(asked, Ok(Asked::Granted(..) | Asked::Busy { .. })) {
        unfinished.settled();
    }
    asked
}

/// The same where the store answers on the spot.
pub(super) fn ask_now(
    core: &Arc<Core>,
    wish: &Wish,
    owner: OwnerId,
    manner: Manner,
    sent: Moment,
) -> Option<Result<Asked, Failure>> {
    let asker = Asker::new(core, wish, owner);
    let request = asker.request(core, wish, manner);
    let Some(reply) = core.engine.call_now(&request, &|| sent) else {
        asker.settled(core, wish);
        return None;
    };
    // No time has passed.
    let asked = reply.and_then(|reply| understand(core, wish, asker, sent, sent, &reply));
    if !matches!(asked, Ok(Asked::Granted(..) | Asked::Busy { .. })) {
        core.cleanup.push(undo(core, wish, asker));
    }
    Some(asked)
}

pub(super) fn request(core: &Core, wish: &Wish, owner: OwnerId, manner: Manner) -> Request {
    wish.subject.request(Action::Acquire {
        owner,
        entry: Entry::First,
        lease: wish.terms.lease,
        seen: core.tokens.seen(&wish.subject),
        waits: manner.waits,
        beside: wish.beside.or_else(|| Some(core.other_side(wish)?.owner)),
        past: manner.past,
        permits: wish.permits,
    })
}

/// Who asks, and by which request if it must not be carried out twice.
#[derive(Clone, Copy, Debug)]
struct Asker {
    owner: OwnerId,
    deed: Option<Deed>,
}

impl Asker {
    /// Where a grant is nobody's each question is a new one: the owner only stands in line.
    fn new(core: &Core, wish: &Wish, owner: OwnerId) -> Self {
        let nobodys = wish.subject.kind.is_nobodys();
        let deed = nobodys.then(|| core.begin_deed(&wish.subject));
        Self { owner, deed }
    }

    /// Who is granted what it asks for.
    fn id(self) -> OwnerId {
        self.deed.map_or(self.owner, |deed| deed.id)
    }

    /// Its outcome is of no concern any more.
    fn settled(self, core: &Core, wish: &Wish) {
        if let Some(deed) = self.deed {
            core.settle_deed(&wish.subject, deed.id);
        }
    }

    fn request(self, core: &Core, wish: &Wish, manner: Manner) -> Request {
        let Some(deed) = self.deed else {
            return request(core, wish, self.owner, manner);
        };
        let change = Alter::Take {
            place: self.owner,
            count: wish.permits.count,
            waits: manner.waits,
        };
        wish.subject.request(Action::Alter { deed, change })
    }
}

fn undo(core: &Arc<Core>, wish: &Wish, asker: Asker) -> Job {
    let Wish { subject, terms, .. } = wish;
    let place = asker.deed.map(|_| asker.owner);
    let place = place.filter(|_| wish.is_announced());
    Job::undo(core, subject, asker.id(), terms.lease).leaving(place)
}

fn understand(
    core: &Arc<Core>,
    wish: &Wish,
    asker: Asker,
    sent: Moment,
    now: Moment,
    reply: &Reply,
) -> Result<Asked, Failure> {
    match reply {
        // Its user would go by a token that nobody gave.
        Reply::Granted { token: None } if wish.subject.kind.is_fenced() => Err(unexpected(reply)),
        Reply::Granted { token } => {
            core.tokens.note(&wish.subject, *token);
            let claim = Hold::granted(core, wish, asker.id(), *token, sent, now);
            Ok(claim.map_or(Asked::TooLate, |claim| Asked::Granted(claim, now)))
        }
        Reply::Busy { ttl } => {
            asker.settled(core, wish);
            Ok(Asked::Busy {
                owner: asker.owner,
                ttl: *ttl,
            })
        }
        other => Err(unexpected(other)),
    }
}
