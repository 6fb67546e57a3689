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
use crate::protocol::{Action, Entry, Moment, OwnerId, Reply, Request};

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
    let undo = || [undo(core, wish, owner)];
    let mut unfinished = Unfinished::new(core, undo);
    let request = request(core, wish, owner, manner);
    let reply = match unfinished.ask(request, deadline).await {
        Ok(reply) => reply,
        Err(failure) => {
            // Where the store knows who waits it may know of this one since before.
            if !failure.leaves_doubt() && !wish.subject.kind.is_announced() {
                unfinished.settled();
            }
            return Err(failure);
        }
    };
    let asked = understand(core, wish, owner, sent, core.clock.now(), &reply);
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
    let request = request(core, wish, owner, manner);
    let reply = core.engine.call_now(&request, &|| sent)?;
    // No time has passed.
    let asked = reply.and_then(|reply| understand(core, wish, owner, sent, sent, &reply));
    if !matches!(asked, Ok(Asked::Granted(..) | Asked::Busy { .. })) {
        core.cleanup.push(undo(core, wish, owner));
    }
    Some(asked)
}

fn request(core: &Core, wish: &Wish, owner: OwnerId, manner: Manner) -> Request {
    wish.subject.request(Action::Acquire {
        owner,
        entry: Entry::First,
        lease: wish.terms.lease,
        seen: core.tokens.seen(wish.subject.kind),
        waits: manner.waits,
        beside: wish.beside.or_else(|| Some(core.other_side(wish)?.owner)),
        past: manner.past,
    })
}

fn undo(core: &Arc<Core>, wish: &Wish, owner: OwnerId) -> Job {
    Job::undo(core, &wish.subject, owner, wish.terms.lease)
}

fn understand(
    core: &Arc<Core>,
    wish: &Wish,
    owner: OwnerId,
    sent: Moment,
    now: Moment,
    reply: &Reply,
) -> Result<Asked, Failure> {
    match reply {
        Reply::Granted { token } => {
            core.tokens.note(*token);
            let claim = Hold::granted(core, wish, owner, *token, sent, now);
            Ok(claim.map_or(Asked::TooLate, |claim| Asked::Granted(claim, now)))
        }
        Reply::Busy { ttl } => Ok(Asked::Busy { owner, ttl: *ttl }),
        other => Err(unexpected(other)),
    }
}
