//! The latch: one count for both sides, and everybody goes on when it is zero. Who holds is who sets and counts here.

mod counts;
mod opening;

use crate::failure::{Outcome, ensure};
use crate::stage::Stage;
use crate::world::until;

pub(super) use counts::{deleted, ends_on_time, set};
pub(super) use opening::{again, everybody, odd_names, opens, prefixed};

/// Both sides say the same of what is left to count down.
async fn agree(stage: &Stage, name: &str, left: i64) -> Outcome {
    for party in [&stage.holder, &stage.other] {
        let (said, who) = (party.latch(name).count().await?, party.title());
        ensure!(said == left, "{who} sees {said} left, not {left}");
    }
    Ok(())
}

/// It is open, and nothing is left of it.
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
