//! The hammer on one lock on a majority of three servers.

use std::time::Duration;

use crate::failure::Outcome;
use crate::quorum::nothing_is_left;
use crate::stage::Fleet;
use crate::world::CLEAN_WITHIN;

/// Plays the hammer where the servers are, and checks that nothing is left on any of them.
pub(crate) async fn play(fleet: &mut Fleet) -> Outcome<String> {
    fleet.world.servers().come_of_age(LONGEST_LEASE).await;
    let remark = super::play(fleet).await?;
    nothing_is_left(fleet.servers(), LONGEST_LEASE + CLEAN_WITHIN).await?;
    Ok(remark)
}

/// The longest lease of our waiters and of redlock's, which may leave votes of fewer than a majority behind.
const LONGEST_LEASE: Duration = Duration::from_secs(20);
