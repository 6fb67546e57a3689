//! Leases: one that expires by itself, one that is renewed.

use std::time::Duration;

use super::super::ROUNDING;
use super::is_still;
use crate::failure::{Failure, Outcome, ensure};
use crate::simple::{Lease, MINUTES, Side, Stage};
use crate::world::{World, until};

/// When a lease expires, the waiter acquires the lock, and the former holder can neither release it nor extend it.
pub(in super::super) async fn expires(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
    } = stage;
    let name = "simple-expiry";
    let lease = Duration::from_secs(1);
    let held = holder.lock(name, Lease::Fixed(lease)).await?;
    let waited = other.lock(name, MINUTES).await?;
    ensure!(
        waited.to + ROUNDING + holder.gives_up_early(lease) >= held.from + lease,
        "the other had it {:?} before the lease was over",
        (held.from + lease).since(waited.to)
    );
    let late = waited.to.since(held.to + lease);

    let extended = holder.extend(name, MINUTES.time()).await?;
    ensure!(extended.is_some(), "it extended what is the other's");
    holder.unlock(name).await?.refused()?;
    is_still(world, other, holder, name).await?;
    other.unlock(name).await?.done()?;
    holder.finds_lock_free(name).await?;
    Ok(format!("{:.0} ms after its end", late.as_secs_f64() * 1e3))
}

/// A lease is renewed until more time has passed than it has, and a waiter waits all the while. Our lease is renewed by itself, that of
/// another library by the holder, in every way the library has.
pub(in super::super) async fn is_kept(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
    } = stage;
    let name = "simple-kept";
    let lease = Duration::from_secs(6);
    holder.lock(name, Lease::Kept(lease)).await?;
    let unlock = async {
        let mut lowest = lease;
        // The renewals are a third of the lease apart.
        for _ in 0..4 {
            lowest = lowest.min(match &mut *holder {
                Side::Ours(_) => world.renewals(name, 1).await?,
                Side::Theirs(_) => extended(world, holder, name, lease).await?,
            });
        }
        Ok((holder.unlock(name).await?.done()?, lowest))
    };
    let (waited, (freed, lowest)) = tokio::try_join!(other.lock(name, MINUTES), unlock)?;
    ensure!(waited.to > freed.from, "it had the lock while it was kept");
    other.unlock(name).await?.done()?;
    Ok(format!("4 renewals, lowest {} ms", lowest.as_millis()))
}

/// Extends a lease when a third of it is over. Returns what was left then.
async fn extended(
    world: &World,
    holder: &mut Side,
    name: &str,
    lease: Duration,
) -> Outcome<Duration> {
    until("a third of it is over", || {
        world.left(name).is_ok_and(|left| left < lease * 2 / 3)
    })
    .await?;
    let left = world.left(name)?;
    match holder.extend(name, lease).await? {
        Some(why) => Err(Failure::new(format!("not extended: {why}"))),
        None => Ok(left),
    }
}
