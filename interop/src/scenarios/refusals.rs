//! Unlocks that must be refused, and one that must not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ROUNDING;
use crate::failure::{Failure, Outcome, ensure};
use crate::party::{Party, Term};
use crate::stage::Stage;

/// A former holder, or a party that never held the lock, cannot unlock it under its holder.
pub(super) async fn strangers(stage: &mut Stage) -> Outcome<String> {
    let Stage { holder, other, .. } = stage;
    let name = "stranger";
    // Our API cannot express unlocking a lock that one never held; Java's can.
    if matches!(other, Party::Java(_)) {
        holder.lock(name, Term::Kept).await?;
        other.unlock(name).await?.refused()?;
        still_held(holder, other, name).await?;
        holder.unlock(name).await?.done()?;
    }
    let lease = Duration::from_secs(1);
    other.lock(name, Term::Fixed(lease)).await?;
    holder.lock(name, Term::Kept).await?;
    let why = other.unlock(name).await?.refused()?;
    still_held(holder, other, name).await?;
    holder.unlock(name).await?.done()?;
    other.finds_lock_free(name).await?;
    Ok(why.chars().take(48).collect::<String>() + "…")
}

async fn still_held(holder: &Party, other: &mut Party, name: &str) -> Outcome {
    let expected = BTreeMap::from([(holder.owner(name)?, 1)]);
    let seen = other.holders(name).await?;
    ensure!(seen == expected, "the lock is {seen:?}, not {expected:?}");
    other.is_excluded(name).await
}

/// The other side releases the lock by force. The holder learns it: Java when it unlocks, our client by itself.
pub(super) async fn forced(stage: &mut Stage) -> Outcome<String> {
    let lease = stage.terms.watchdog;
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let name = "force";
    ensure!(
        !other.force_unlock(name).await?,
        "there was nothing to force"
    );
    holder.lock(name, Term::Kept).await?;
    ensure!(other.force_unlock(name).await?, "the lock was not forced");
    ensure!(!holder.is_locked(name).await?, "it is still there");

    let remark = match holder {
        Party::Java(_) => String::new(),
        Party::Ours(task) => {
            let lost = task.lost(name).await?;
            let lost = lost.ok_or_else(|| Failure::new("told that we gave it back"))?;
            ensure!(!task.is_held(name), "lost, and yet held");
            lost.to_string()
        }
    };
    let why = holder.unlock(name).await?.refused()?;
    // A watchdog that went on would bring the lock back, or keep the next holder's.
    other.lock(name, Term::Fixed(lease)).await?;
    let left = world.left(name)?;
    tokio::time::sleep(left + ROUNDING).await;
    ensure!(
        !holder.is_locked(name).await?,
        "somebody keeps the other's lease alive"
    );
    other.unlock(name).await?.refused()?;
    Ok(if remark.is_empty() { why } else { remark })
}
