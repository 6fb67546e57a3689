//! Leases: one that ends by itself, one that is kept.

use std::time::Duration;

use super::super::{ROUNDING, SLACK};
use super::is_still;
use crate::failure::{Failure, Outcome, ensure, in_time};
use crate::simple::{A_MINUTE, Lease, Side, Stage};

/// When a lease is over, whoever waits has the lock, and the former holder can neither give it back nor
/// extend it.
pub(in super::super) async fn expires(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
    } = stage;
    let name = "simple-expiry";
    let lease = Duration::from_millis(700);
    let held = holder.lock(name, Lease::Fixed(lease)).await?;
    let waited = other.lock(name, A_MINUTE).await?;
    ensure!(
        waited.to + ROUNDING + holder.gives_up_early(lease) >= held.from + lease,
        "the other had it {:?} before the lease was over",
        (held.from + lease).since(waited.to)
    );
    let late = waited.to.since(held.to + lease);
    in_time!(
        late <= other.pause() + SLACK,
        "the other had it {late:?} after the lease was over"
    );

    let extended = holder.extend(name, A_MINUTE.time()).await?;
    ensure!(extended.is_some(), "it extended what is the other's");
    holder.unlock(name).await?.refused()?;
    is_still(world, other, holder, name).await?;
    other.unlock(name).await?.done()?;
    holder.finds_it_free(name).await?;
    Ok(format!("{:.0} ms after its end", late.as_secs_f64() * 1e3))
}

/// A lease that is renewed is still there after many times its length, and a waiter waits all the while.
/// Ours is renewed by itself, theirs by whoever holds it, in every way their library has.
pub(in super::super) async fn is_kept(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
    } = stage;
    let name = "simple-kept";
    let (lease, time) = (Duration::from_millis(800), Duration::from_millis(2_400));
    holder.lock(name, Lease::Kept(lease)).await?;
    let mut renewals = 0;
    let mut lowest = lease;
    // How long this machine stood still, or the server did: only that excuses a lease of ours that was over for a while. Theirs
    // is renewed here, too, and may be over.
    let mut stall = Duration::ZERO;
    let watch = async {
        let mut before = lease;
        loop {
            let slept = std::time::Instant::now();
            tokio::time::sleep(Duration::from_millis(50)).await;
            let left = u64::try_from(world.server().pttl(name)).map(Duration::from_millis);
            stall = stall.max(slept.elapsed());
            let left = left.unwrap_or_default();
            renewals += u32::from(left > before);
            lowest = lowest.min(left);
            before = left;
            if matches!(holder, Side::Theirs(_)) && left < lease * 2 / 3 {
                let refused = holder.extend(name, lease).await?;
                if let Some(why) = refused {
                    return Err::<(), _>(Failure::late(format!("not extended: {why}")));
                }
            }
        }
    };
    let (granted, span) = tokio::select! {
        waited = other.try_lock(name, time, A_MINUTE) => waited?,
        failed = watch => return failed.map(|()| String::new()),
    };
    if granted || lowest == Duration::ZERO {
        let took = span.took();
        let what =
            format!("the lease was over within {took:?} of {time:?}; standing still for {stall:?}");
        let theirs = matches!(holder, Side::Theirs(_));
        let slow = stall > lease / 4 || (theirs && lowest < lease / 4);
        return Err(Failure::new(what).excused_if(slow));
    }
    let wanted = u32::try_from(time.as_millis() / lease.as_millis())?;
    in_time!(renewals >= wanted, "only {renewals} renewals in {time:?}");
    holder.unlock(name).await?.done()?;
    other.finds_it_free(name).await?;
    Ok(format!(
        "{renewals} renewals, lowest {} ms",
        lowest.as_millis()
    ))
}
