//! Re-entry: a holder may acquire its lock again, and has to release it as often.

use std::collections::BTreeMap;

use crate::failure::{Outcome, ensure};
use crate::party::Term;
use crate::stage::Stage;

/// Three acquires, three releases: the other side reads every count and is kept out until the last.
pub(super) async fn counts(stage: &mut Stage) -> Outcome<String> {
    let Stage { holder, other, .. } = stage;
    let name = "reentry";
    for count in 1..=3 {
        holder.lock(name, Term::Kept).await?;
        ensure!(
            holder.hold_count(name).await? == count,
            "it counts otherwise"
        );
        let expected = BTreeMap::from([(holder.owner(name)?, count)]);
        let seen = other.holders(name).await?;
        ensure!(
            seen == expected,
            "the other sees {seen:?}, not {expected:?}"
        );
        ensure!(
            other.hold_count(name).await? == 0,
            "the other counts a hold it has not"
        );
        other.is_excluded(name).await?;
    }
    for left in (0..3).rev() {
        other.is_excluded(name).await?;
        holder.unlock(name).await?.done()?;
        let seen = other.holders(name).await?;
        let counts: Vec<u64> = seen.into_values().collect();
        let expected = Vec::from_iter((left > 0).then_some(left));
        ensure!(
            counts == expected,
            "the other sees {counts:?}, not {expected:?}"
        );
    }
    other.finds_lock_free(name).await?;
    Ok(String::new())
}

/// A partial release wakes no waiter and keeps the lease alive; the last one wakes the waiter.
pub(super) async fn partly_released(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let name = "partial";
    holder.lock(name, Term::Kept).await?;
    holder.lock(name, Term::Kept).await?;
    let unlock = async {
        world.asleep(name).await?;
        let messages = world.messages();
        holder.unlock(name).await?.done()?;
        ensure!(world.messages() == messages, "a partial release sent word");
        // The remaining hold has to be renewed too.
        world.renewals(name, 2).await?;
        let holders = holder.holders(name).await?;
        let expected = BTreeMap::from([(holder.owner(name)?, 1)]);
        ensure!(holders == expected, "it is {holders:?}, not {expected:?}");
        holder.unlock(name).await?.done()
    };
    let (waited, freed) = tokio::try_join!(other.lock(name, Term::Kept), unlock)?;
    ensure!(
        waited.to > freed.from,
        "the other had it after a partial release"
    );
    other.unlock(name).await?.done()?;
    Ok(String::new())
}
