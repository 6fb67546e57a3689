//! The semaphore that only counts: one number for both sides, of permits that are nobody's.

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

/// Both sides say the same of how many can be had.
async fn agree(stage: &Stage, name: &str, there: i64) -> Outcome {
    for party in [&stage.holder, &stage.other] {
        let (said, who) = (party.counting(name).available().await?, party.title());
        ensure!(said == there, "{who} sees {said} permits, not {there}");
    }
    Ok(())
}

/// Asks once for so many and must be told that there are not enough.
async fn is_refused(party: &Party, name: &str, permits: u32) -> Outcome {
    let got = party.counting(name).try_take(permits).await?;
    let who = party.title();
    ensure!(!got, "{who} got {permits} that are not there");
    Ok(())
}

/// All permits are there again, and nothing else is left of it; then that goes, too.
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
