//! Maintains a lock that a majority of several servers has granted: collects late votes, and reacquires the lock on
//! servers that do not hold it, so that a lock that lasts for weeks outlives every server's restart.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::quorum_hold::QuorumHold;
use super::vote::{PendingVotes, ServerVote};
use crate::engine::supervise::{Restarts, catch_panic};
use crate::engine::tag_simulated_process;

/// Upper bound of the interval, however long the lease is.
const MAX_REACQUIRE_INTERVAL: Duration = Duration::from_secs(15);

/// Starts the maintenance task, which runs until the hold ends. Without a runtime there is no such task, and pending
/// requests are undone.
#[expect(clippy::disallowed_methods, reason = "the driver owns these tasks")]
pub(super) fn start(quorum_hold: &Arc<QuorumHold>, pending: PendingVotes) {
    if let Ok(runtime) = Handle::try_current() {
        let task = runtime.spawn(tag_simulated_process(maintain(
            quorum_hold.clone(),
            pending,
        )));
        quorum_hold.set_maintenance_task(task.abort_handle());
    }
}

async fn maintain(quorum_hold: Arc<QuorumHold>, pending: PendingVotes) {
    let events = &quorum_hold.targets()[0].core.events;
    let maintenance = async {
        if let Err(panicked) = catch_panic(collect_votes(&quorum_hold, pending)).await {
            panicked.report("quorum", events);
        }
        let mut restarts = Restarts::new("quorum", events);
        while let Err(panicked) = catch_panic(reacquire_missing(&quorum_hold)).await {
            restarts.report(panicked);
        }
    };
    tokio::select! {
        // The end is noticed here even if no other task checks for it.
        _ = quorum_hold.clone().ended() => {}
        () = maintenance => {}
    }
}

async fn collect_votes(quorum_hold: &QuorumHold, mut pending_votes: PendingVotes) {
    while let Some((index, vote)) = pending_votes.next().await {
        if let ServerVote::Granted(hold_ref) = vote {
            quorum_hold.join(index, hold_ref);
        }
    }
}

/// Reacquires the lock on servers that do not hold it: at longer intervals than the renewals of all of them, so that a
/// lock that was force-released on every server is not reacquired one server at a time.
async fn reacquire_missing(quorum_hold: &QuorumHold) {
    let targets = quorum_hold.targets();
    let (clock, terms) = (&targets[0].core.clock, targets[0].params.terms);
    if !terms.keep_alive {
        // A fixed lease ends before a missing grant matters.
        return std::future::pending().await;
    }
    let pause = (terms.lease / 2).min(MAX_REACQUIRE_INTERVAL);
    let begun = clock.now();
    loop {
        clock.sleep_until(Some(clock.now() + pause)).await;
        // A reacquired grant does not outlast the maximum hold time of the whole.
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
