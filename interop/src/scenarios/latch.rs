//! The latch: one count for both sides, and all waiters go on when it is zero. The stage's holder is the party that sets and counts here.

mod counts;
mod opening;

use crate::failure::{Outcome, ensure};
use crate::stage::Stage;
use crate::world::until;

pub(super) use counts::{deleted, ends_on_time, set};
pub(super) use opening::{again, all_waiters, odd_names, opens, prefixed};

/// Checks that both sides report the same count.
async fn agree(stage: &Stage, name: &str, left: i64) -> Outcome {
    for party in [&stage.holder, &stage.other] {
        let (said, who) = (party.latch(name).count().await?, party.title());
        ensure!(said == left, "{who} sees {said} left, not {left}");
    }
    Ok(())
}

/// Checks that the latch is open, and that nothing is left of it.
async fn settle(stage: &Stage, name: &str) -> Outcome {
    agree(stage, name, 0).await?;
    for party in [&stage.holder, &stage.other] {
        let (deleted, who) = (party.latch(name).delete().await?, party.title());
        ensure!(!deleted, "{who} deleted what is open");
    }
    stage.world.forget_done()?;
    let server = stage.world.server();
    until("nothing is left", || server.keys().is_empty()).await
}
