//! The counting semaphore: one number for both sides, and permits without owners.

mod changes;
mod sharing;
mod waiting;

use super::semaphore::only_the_number;
use crate::failure::{Outcome, ensure};
use crate::party::Party;
use crate::stage::Stage;

pub(super) use changes::{added, forgotten, set};
pub(super) use sharing::{odd_names, prefixed, shared};
pub(super) use waiting::{ends_on_time, in_line, several, wakes};

/// Checks that both sides report the same number of available permits.
async fn agree(stage: &Stage, name: &str, there: i64) -> Outcome {
    for party in [&stage.holder, &stage.other] {
        let (said, who) = (party.counting(name).available().await?, party.title());
        ensure!(said == there, "{who} sees {said} permits, not {there}");
    }
    Ok(())
}

/// Tries once to acquire this many permits and must be told that there are not enough.
async fn is_refused(party: &Party, name: &str, permits: u32) -> Outcome {
    let got = party.counting(name).try_take(permits).await?;
    let who = party.title();
    ensure!(!got, "{who} got {permits} that are not there");
    Ok(())
}

/// Checks that all permits are available again, and that nothing else is left of the semaphore; then deletes it.
async fn settle(stage: &Stage, name: &str, key: &str, total: u32) -> Outcome {
    let world = &stage.world;
    agree(stage, name, total.into()).await?;
    world.forget_done()?;
    only_the_number(world, key, total).await?;
    for (party, was) in [(&stage.holder, true), (&stage.other, false)] {
        let deleted = party.counting(name).delete().await?;
        let who = party.title();
        ensure!(deleted == was, "{who} deleted it: {deleted}");
    }
    world.forget_done()
}
