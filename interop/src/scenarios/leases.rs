//! Leases: one that ends by itself, one that is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{AT_ONCE, ROUNDING, SLACK};
use crate::failure::{Failure, Outcome, ensure, in_time};
use crate::party::{Party, Term};
use crate::stage::Stage;

/// When a lease is over, whoever waits has the lock, and the former holder cannot disturb it.
pub(super) async fn expires(stage: &mut Stage) -> Outcome<String> {
    let Stage { holder, other, .. } = stage;
    let name = "expiry";
    let lease = Duration::from_secs(1);
    let held = holder.lock(name, Term::Fixed(lease)).await?;
    let waited = other.lock(name, Term::Kept).await?;
    ensure!(
        waited.to + ROUNDING + holder.gives_up_early(lease) >= held.from + lease,
        "the other had it {:?} before the lease was over",
        (held.from + lease).since(waited.to)
    );
    let late = waited.to.since(held.to + lease);
    in_time!(
        late <= SLACK,
        "the other had it {late:?} after the lease was over"
    );

    holder.unlock(name).await?.refused()?;
    let expected = BTreeMap::from([(other.owner(name)?, 1)]);
    let seen = holder.holders(name).await?;
    ensure!(seen == expected, "the lock is {seen:?}, not {expected:?}");
    other.unlock(name).await?.done()?;
    holder.finds_it_free(name).await?;
    Ok(format!("{:.0} ms after its end", late.as_secs_f64() * 1e3))
}

/// A kept lease is still there after many times its length, and a waiter waits all the while.
pub(super) async fn is_kept(stage: &mut Stage) -> Outcome<String> {
    let lease = stage.terms.watchdog;
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let name = "watchdog";
    let time = Duration::from_secs(6);
    holder.lock(name, Term::Kept).await?;
    let mut renewals = 0;
    let mut lowest = lease;
    // How long this machine stood still, or the server did: only that excuses a lease of ours that was over for a while. Java's is Java's
    // affair, if it is over.
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
        }
    };
    let (granted, span) = tokio::select! {
        waited = other.try_lock(name, time, Term::Kept) => waited?,
        () = watch => unreachable!("it watches until the wait is over"),
    };
    let javas = matches!(holder, Party::Java(_));
    let excused = stall > lease / 4 || (javas && lowest < lease / 4);
    if granted || lowest == Duration::ZERO {
        let took = span.took();
        let what =
            format!("the lease was over within {took:?} of {time:?}; standing still for {stall:?}");
        return Err(Failure::new(what).excused_if(excused));
    }
    let wanted = u32::try_from(time.as_millis() / lease.as_millis())?;
    in_time!(renewals >= wanted, "only {renewals} renewals in {time:?}");

    let unlock = async {
        world.asleep(name).await?;
        holder.unlock(name).await?.done()
    };
    let (waited, freed) = tokio::try_join!(other.lock(name, Term::Kept), unlock)?;
    let late = waited.to.since(freed.from);
    in_time!(late <= AT_ONCE, "after the unlock it took {late:?}");
    other.unlock(name).await?.done()?;
    Ok(format!(
        "{renewals} renewals, lowest {} ms",
        lowest.as_millis()
    ))
}
