//! Looks after a lock that most of several servers have granted: hears those out who answer late, and asks those again where
//! it is not held, so that one that lasts for weeks outlives every server's restart.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::quorum_hold::QuorumHold;
use super::vote::{PendingVotes, ServerVote};
use crate::engine::in_process;
use crate::engine::supervise::{Restarts, catch_panic};

/// However long the lease is.
const MAX_REACQUIRE_INTERVAL: Duration = Duration::from_secs(15);

/// Starts to look after it, until it is over. Without a runtime nobody does: what has not answered by now is undone.
#[expect(clippy::disallowed_methods, reason = "the driver's own tasks")]
pub(super) fn start(quorum_hold: &Arc<QuorumHold>, late: PendingVotes) {
    if let Ok(runtime) = Handle::try_current() {
        let task = runtime.spawn(in_process(maintain(quorum_hold.clone(), late)));
        quorum_hold.set_maintenance_task(task.abort_handle());
    }
}

async fn maintain(quorum_hold: Arc<QuorumHold>, late: PendingVotes) {
    let events = &quorum_hold.targets()[0].core.events;
    let asking = async {
        if let Err(panicked) = catch_panic(collect_votes(&quorum_hold, late)).await {
            panicked.report("quorum", events);
        }
        let mut restarts = Restarts::new("quorum", events);
        while let Err(panicked) = catch_panic(reacquire_missing(&quorum_hold)).await {
            restarts.report(panicked);
        }
    };
    tokio::select! {
        // It is noticed here also if nobody else looks.
        _ = quorum_hold.clone().ended() => {}
        () = asking => {}
    }
}

async fn collect_votes(quorum_hold: &QuorumHold, mut pending_votes: PendingVotes) {
    while let Some((index, vote)) = pending_votes.next().await {
        if let ServerVote::Granted(hold_ref) = vote {
            quorum_hold.join(index, hold_ref);
        }
    }
}

/// Asks again where it is not held: less often than all are renewed, so that a lock that was forced open everywhere is not
/// taken back piece by piece.
async fn reacquire_missing(quorum_hold: &QuorumHold) {
    let targets = quorum_hold.targets();
    let (clock, terms) = (&targets[0].core.clock, targets[0].params.terms);
    if !terms.keep_alive {
        // It is over before it matters.
        return std::future::pending().await;
    }
    let pause = (terms.lease / 2).min(MAX_REACQUIRE_INTERVAL);
    let begun = clock.now();
    loop {
        clock.sleep_until(Some(clock.now() + pause)).await;
        // What comes back does not last longer than the whole was to.
        let over = clock.now().since(begun);
        if terms.max_hold.is_some_and(|longest| longest <= over) {
            return std::future::pending().await;
        }
        let missing = quorum_hold.missing().into_iter().map(|index| {
            let mut target = targets[index].clone();
            let longest = &mut target.params.terms.max_hold;
            *longest = longest.map(|longest| longest.saturating_sub(over));
            (index, target)
        });
        let missing: Vec<_> = missing.collect();
        let missing = missing.iter().map(|(index, target)| (*index, target));
        collect_votes(
            quorum_hold,
            PendingVotes::of(missing, quorum_hold.config(), None),
        )
        .await;
    }
}
