//! Both sides share the same permits, whatever the semaphore is called.

use super::{agree, is_refused, settle};
use crate::failure::{Outcome, ensure};
use crate::scenarios::BRIEF;
use crate::scenarios::names::ODD;
use crate::stage::Stage;
use crate::world::semaphore_channel;

/// One side has two of five permits and the other three: one more is refused to both, and either may release any number.
pub(crate) async fn shared(stage: &mut Stage) -> Outcome<String> {
    let name = "counting-share";
    let (holder, other) = (stage.holder.counting(name), stage.other.counting(name));
    ensure!(holder.try_set(5).await?, "it was there");
    agree(stage, name, 5).await?;
    holder.take(2).await?;
    agree(stage, name, 3).await?;
    is_refused(&stage.other, name, 4).await?;
    other.take(3).await?;
    agree(stage, name, 0).await?;
    for party in [&stage.holder, &stage.other] {
        is_refused(party, name, 1).await?;
        let (got, span) = party.counting(name).take_within(1, BRIEF).await?;
        let (who, took) = (party.title(), span.took());
        ensure!(!got, "{who} got a sixth by waiting");
        ensure!(took >= BRIEF * 9 / 10, "{who} gave up after {took:?}");
    }
    // Permits have no owner: this release includes one that the other side acquired.
    holder.release(3).await?;
    agree(stage, name, 3).await?;
    ensure!(other.try_take(3).await?, "three were there");
    is_refused(&stage.holder, name, 1).await?;
    other.release(5).await?;
    settle(stage, name, name, 5).await?;
    Ok(String::new())
}

/// Each name is the same semaphore, and the same channel, on both sides.
pub(crate) async fn odd_names(stage: &mut Stage) -> Outcome<String> {
    for name in ODD {
        meets(stage, name, name)
            .await
            .map_err(|failure| failure.during(format_args!("{name:?}")))?;
    }
    Ok(format!("{} names", ODD.len()))
}

/// With a prefix on both sides, the names are the same and the keys carry it.
pub(crate) async fn prefixed(stage: &mut Stage) -> Outcome<String> {
    let prefix = stage.terms.prefix;
    for name in ["order", "a{b}c"] {
        meets(stage, name, &format!("{prefix}{name}")).await?;
    }
    Ok(String::new())
}

async fn meets(stage: &Stage, name: &str, key: &str) -> Outcome {
    let (holder, other) = (stage.holder.counting(name), stage.other.counting(name));
    ensure!(holder.try_set(2).await?, "it was there");
    holder.take(1).await?;
    is_refused(&stage.other, name, 2).await?;
    let give_back = async {
        stage.world.asleep_on(&semaphore_channel(key)).await?;
        holder.release(1).await
    };
    let (waited, freed) = tokio::try_join!(other.take(2), give_back)?;
    ensure!(waited.to > freed.from, "it had all before all were back");
    is_refused(&stage.holder, name, 1).await?;
    other.release(2).await?;
    settle(stage, name, key, 2).await
}
