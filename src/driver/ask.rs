//! One question to the store: may we have the lock?

use std::sync::Arc;
use std::time::Duration;

use super::acquire::Wish;
use super::hold::{Claim, Hold};
use super::job::Job;
use super::unfinished::Unfinished;
use super::{Core, unexpected};
use crate::engine::Failure;
use crate::protocol::lease::Terms;
use crate::protocol::{Action, Entry, Moment, OwnerId, Reply};

/// What the store made of one request.
pub(super) enum Asked {
    /// Somebody else has it, for this long. Nothing of this owner is left at the store.
    Busy {
        owner: OwnerId,
        ttl: Option<Duration>,
    },
    Granted(Claim),
    /// Granted, but the lease ran out before we heard of it.
    TooLate,
}

/// One request from zero. Dropping it, or losing its reply, has it undone, and its owner is not to be used
/// again; a busy lock's answer brings the owner back.
pub(super) async fn ask(
    core: &Arc<Core>,
    wish: &Wish,
    owner: OwnerId,
    deadline: Option<Moment>,
) -> Result<Asked, Failure> {
    let Terms { lease, .. } = wish.terms;
    let request = wish.subject.request(Action::Acquire {
        owner: owner.clone(),
        entry: Entry::First,
        lease,
    });
    let undo = Job::Undo {
        core: core.clone(),
        subject: wish.subject.clone(),
        owner: owner.clone(),
        lease,
    };
    let mut unfinished = Unfinished::new(core.clone(), vec![undo]);
    // Before it is sent: the store's clock starts no earlier.
    let sent = core.clock.now();
    let reply = match unfinished.ask(request, core.limit(deadline)).await {
        Ok(reply) => reply,
        Err(failure) => {
            if !failure.leaves_doubt() {
                unfinished.settled();
            }
            return Err(failure);
        }
    };
    match reply {
        Reply::Granted => {
            let claim = Hold::granted(core, wish, owner, sent);
            // Without a claim it is still `unfinished` that takes the grant back.
            Ok(match claim {
                Some(claim) => {
                    unfinished.settled();
                    Asked::Granted(claim)
                }
                None => Asked::TooLate,
            })
        }
        Reply::Busy { ttl } => {
            unfinished.settled();
            Ok(Asked::Busy { owner, ttl })
        }
        other => Err(unexpected(&other)),
    }
}
