//! Looks after a lock that most of several servers have granted: hears those out who answer late, and asks those again where
//! it is not held, so that one that lasts for weeks outlives every server's restart.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::majority::Majority;
use super::vote::{Ballot, Vote};
use crate::engine::in_process;
use crate::engine::supervise::{Restarts, caught};

/// However long the lease is.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Starts to look after it, until it is over. Without a runtime nobody does: what has not answered by now is undone.
#[expect(clippy::disallowed_methods, reason = "the driver's own tasks")]
pub(super) fn start(majority: &Arc<Majority>, late: Ballot) {
    if let Ok(runtime) = Handle::try_current() {
        let keeping = runtime.spawn(in_process(keep(majority.clone(), late)));
        majority.kept_by(keeping.abort_handle());
    }
}

async fn keep(majority: Arc<Majority>, late: Ballot) {
    let events = &majority.parts()[0].core.events;
    let asking = async {
        if let Err(panicked) = caught(hear(&majority, late)).await {
            panicked.report("quorum", events);
        }
        let mut restarts = Restarts::of("quorum", events);
        while let Err(panicked) = caught(heal(&majority)).await {
            restarts.report(panicked);
        }
    };
    tokio::select! {
        // It is noticed here also if nobody else looks.
        _ = majority.clone().ended() => {}
        () = asking => {}
    }
}

async fn hear(majority: &Majority, mut ballot: Ballot) {
    while let Some((place, vote)) = ballot.next().await {
        if let Vote::Granted(claim) = vote {
            majority.join(place, claim);
        }
    }
}

/// Asks again where it is not held: less often than all are renewed, so that a lock that was forced open everywhere is not
/// taken back piece by piece.
async fn heal(majority: &Majority) {
    let parts = majority.parts();
    let (clock, terms) = (&parts[0].core.clock, parts[0].wish.terms);
    if !terms.keep_alive {
        // It is over before it matters.
        return std::future::pending().await;
    }
    let pause = (terms.lease / 2).min(LONGEST_PAUSE);
    let begun = clock.now();
    loop {
        clock.sleep_until(Some(clock.now() + pause)).await;
        // What comes back does not last longer than the whole was to.
        let over = clock.now().since(begun);
        if terms.max_hold.is_some_and(|longest| longest <= over) {
            return std::future::pending().await;
        }
        let missing = majority.missing().into_iter().map(|place| {
            let mut part = parts[place].clone();
            let longest = &mut part.wish.terms.max_hold;
            *longest = longest.map(|longest| longest.saturating_sub(over));
            (place, part)
        });
        let missing: Vec<_> = missing.collect();
        let missing = missing.iter().map(|(place, part)| (*place, part));
        hear(majority, Ballot::of(missing, majority.rules(), None)).await;
    }
}
