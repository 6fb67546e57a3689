//! Loss: the key is taken from its holder.

use std::time::Duration;

use super::is_still;
use crate::failure::{Failure, Outcome, ensure};
use crate::simple::{Lease, MINUTES, Side, Stage};

/// The key is deleted and the other side acquires the lock. Our client is notified, the other library's learns it by a request; neither can
/// release the other side's lock, extend it, or keep its own lease alive.
pub(in super::super) async fn is_taken(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
    } = stage;
    let name = "simple-taken";
    let lease = Duration::from_secs(6);
    holder.lock(name, Lease::Kept(lease)).await?;
    let deleted: u64 = world.server().query(&["DEL", name]);
    ensure!(deleted == 1, "it was not there to be deleted");
    let (granted, _) = other.try_lock(name, Duration::ZERO, MINUTES).await?;
    ensure!(granted, "the other did not get what is free");

    let remark = match &*holder {
        Side::Ours(client) => {
            let lost = client.lost(name).await?;
            let lost = lost.ok_or_else(|| Failure::new("told that we gave it back"))?;
            ensure!(!client.is_held(name), "lost, and yet held");
            lost.to_string()
        }
        Side::Theirs(client) => {
            let refused = client.extend(name, lease).await?;
            refused.ok_or_else(|| Failure::new("they extended what is ours"))?
        }
    };
    holder.unlock(name).await?.refused()?;
    is_still(world, other, holder, name).await?;
    other.unlock(name).await?.done()?;
    holder.finds_lock_free(name).await?;
    Ok(remark)
}
