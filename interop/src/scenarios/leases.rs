//! Leases: one that expires by itself, one that is renewed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ROUNDING;
use crate::failure::{Outcome, ensure};
use crate::party::Term;
use crate::stage::Stage;

/// When a lease expires, the waiter acquires the lock, and the former holder cannot disturb it.
pub(super) async fn expires(stage: &mut Stage) -> Outcome<String> {
    let Stage { holder, other, .. } = stage;
    let name = "expiry";
    let lease = Duration::from_secs(2);
    let held = holder.lock(name, Term::Fixed(lease)).await?;
    let waited = other.lock(name, Term::Kept).await?;
    ensure!(
        waited.to + ROUNDING + holder.gives_up_early(lease) >= held.from + lease,
        "the other had it {:?} before the lease was over",
        (held.from + lease).since(waited.to)
    );
    let late = waited.to.since(held.to + lease);

    holder.unlock(name).await?.refused()?;
    let expected = BTreeMap::from([(other.owner(name)?, 1)]);
    let seen = holder.holders(name).await?;
    ensure!(seen == expected, "the lock is {seen:?}, not {expected:?}");
    other.unlock(name).await?.done()?;
    holder.finds_lock_free(name).await?;
    Ok(format!("{:.0} ms after its end", late.as_secs_f64() * 1e3))
}

/// A renewed lease lasts until more time has passed than it has, and a waiter waits all the while.
pub(super) async fn is_kept(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let name = "watchdog";
    holder.lock(name, Term::Kept).await?;
    let unlock = async {
        world.asleep(name).await?;
        // The renewals are a third of the lease apart.
        let lowest = world.renewals(name, 4).await?;
        Ok((holder.unlock(name).await?.done()?, lowest))
    };
    let (waited, (freed, lowest)) = tokio::try_join!(other.lock(name, Term::Kept), unlock)?;
    ensure!(waited.to > freed.from, "it had the lock while it was kept");
    other.unlock(name).await?.done()?;
    Ok(format!("4 renewals, lowest {} ms", lowest.as_millis()))
}
