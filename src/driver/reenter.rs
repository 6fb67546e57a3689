//! Takes a lock once more for an owner that holds it, past the line: behind a stranger it would wait
//! for itself.

use std::sync::Arc;

use super::acquire::Wish;
use super::claim::Claim;
use super::clock::within;
use super::hold::Hold;
use super::job::Job;
use super::unfinished::Unfinished;
use super::{Core, Trouble};
use crate::protocol::lease::Terms;
use crate::protocol::rw::MOST_READS;
use crate::protocol::{Action, Entry, Kind, Moment, Reply, Wanted};

/// Takes the lock once more for an owner that holds it; `None` if it does not.
pub(super) async fn reenter(
    core: &Arc<Core>,
    wish: &Wish,
    deadline: Option<Moment>,
) -> Result<Option<Claim>, Trouble> {
    let hold = wish
        .user
        .and_then(|user| core.owners.find(user, &wish.subject));
    match hold {
        // Boxed: most have no owner, and need not carry the room for this.
        Some(hold) => Box::pin(join(core, wish, hold, deadline)).await,
        None => Ok(None),
    }
}

/// Takes part in this hold, if it is still one.
async fn join(
    core: &Arc<Core>,
    wish: &Wish,
    hold: Arc<Hold>,
    deadline: Option<Moment>,
) -> Result<Option<Claim>, Trouble> {
    let guard = {
        let now = hold.now();
        let mut state = hold.state();
        if state.lease.end().is_some() {
            return Ok(None);
        }
        if let Some(reason) = state.lease.lost(now) {
            // Nobody had noticed yet. It is over; begin anew.
            drop(state);
            hold.lose(reason);
            return Ok(None);
        }
        if wish.subject.kind == Kind::Read && state.lease.count() >= MOST_READS {
            return Err(Trouble::TooManyReads);
        }
        // Counted before the store is asked: the others' releases are partial from now on.
        state.lease.join(wish.terms, now)
    };
    let claim = Claim::new(hold.clone(), guard);
    // One that nobody polls would keep it for ever; after this long its request is no longer new.
    let order = within(
        core.limit(deadline),
        core.wakeups.shield(Box::pin(hold.recount().lock())),
    )
    .await;
    let Terms { lease, .. } = wish.terms;
    let (mut attempt, mut count) = (0, 0);
    let sent = hold.now();
    let counted = hold.counted(|state| {
        state.attempts += 1;
        (attempt, count) = (state.attempts, state.lease.count());
        Some(Action::Acquire {
            owner: hold.owner,
            entry: Entry::Again { attempt, count },
            lease,
            seen: hold.token,
            waits: None,
            beside: None,
            past: false,
            permits: Wanted::ONE,
        })
    });
    let (request, answer) = counted.expect("there is always something to ask");
    let mut unfinished = Unfinished::new(core, || {
        [Job::Recount {
            hold: hold.clone(),
            in_doubt: Some(attempt),
        }]
    });
    let reply = match answer {
        Some(answer) => answer,
        None => unfinished.ask(request, deadline).await,
    };
    let reply = match reply {
        Ok(reply) => reply,
        Err(failure) => {
            if !failure.leaves_doubt() || planted!(ReentryNotUndone) {
                unfinished.settled();
            }
            core.usable()?;
            return Err(Trouble::Failure(failure));
        }
    };
    let granted = matches!(reply, Reply::Granted { .. });
    if granted || reply.refusal().is_some() {
        unfinished.settled();
    }
    drop(order);
    if !granted {
        return Err(hold.refused(&reply));
    }
    hold.extended(lease, sent);
    if hold.count() < count {
        // A guard went meanwhile, and may have had its recount before this raised the count again.
        core.cleanup.push(Job::Recount {
            hold: hold.clone(),
            in_doubt: None,
        });
    }
    match hold.lost() {
        Some(reason) => Err(Trouble::Lost(reason)),
        None => Ok(Some(claim)),
    }
}
