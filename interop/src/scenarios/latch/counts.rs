//! The count: set, counted down, waited for in vain, and deleted.

use std::time::Duration;

use super::{agree, settle};
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::Party;
use crate::scenarios::LONG;
use crate::stage::Stage;
use crate::world::latch_channel;

/// The count is set once until the latch is open, both sides count it down, it never goes below zero, and then it can be set anew.
pub(crate) async fn set(stage: &mut Stage) -> Outcome<String> {
    let name = "latch-set";
    let server = stage.world.server();
    let (holder, other) = (stage.holder.latch(name), stage.other.latch(name));
    agree(stage, name, 0).await?;
    for round in 1..=2 {
        let (first, second) = if round == 1 {
            (&holder, &other)
        } else {
            (&other, &holder)
        };
        ensure!(first.try_set(3).await?, "round {round}: it was closed");
        for latch in [second, first] {
            ensure!(!latch.try_set(5).await?, "round {round}: set twice");
        }
        agree(stage, name, 3).await?;
        ensure!(server.pttl(name) == -1, "the count has an end");
        for (latch, left) in [
            (second, 2),
            (first, 1),
            (second, 0),
            (first, 0),
            (second, 0),
        ] {
            latch.count_down().await?;
            agree(stage, name, left).await?;
        }
        let exists: u64 = server.query(&["EXISTS", name]);
        ensure!(exists == 0, "what is open is still there");
        // The latch is open for waiters that come now.
        for latch in [first, second] {
            latch.wait().await?;
            let (open, _) = latch.wait_within(LONG).await?;
            ensure!(open, "round {round}: it is closed");
        }
    }
    settle(stage, name).await?;
    Ok(String::new())
}

/// A wait that ends before the latch is open reports so, and leaves no subscription.
pub(crate) async fn ends_on_time(stage: &mut Stage) -> Outcome<String> {
    let name = "latch-patience";
    let wait = Duration::from_millis(600);
    let world = &stage.world;
    let (holder, other) = (stage.holder.latch(name), stage.other.latch(name));
    ensure!(holder.try_set(2).await?, "it was closed");
    let count_down = async {
        let channel = latch_channel(name);
        world.asleep_on(&channel).await?;
        world.hears_only(&channel)?;
        // The count is not zero yet, so no waiter goes on.
        holder.count_down().await
    };
    let ((open, span), _) = tokio::try_join!(other.wait_within(wait), count_down)?;
    ensure!(!open, "it is open at one");
    let took = span.took();
    ensure!(took >= wait * 9 / 10, "it gave up after {took:?}");
    crate::world::until("nobody listens", || {
        world.server().pubsub_channels().is_empty()
    })
    .await?;
    agree(stage, name, 1).await?;
    holder.count_down().await?;
    settle(stage, name).await?;
    Ok(String::new())
}

/// Deleting the latch lets waiters of ours go on, whichever side deletes, and Java's if our side does. Redisson's delete makes its own
/// waiters close their latch, and they wait for the next time it is opened.
pub(crate) async fn deleted(stage: &mut Stage) -> Outcome<String> {
    let name = "latch-delete";
    let world = &stage.world;
    let (holder, other) = (stage.holder.latch(name), stage.other.latch(name));
    let beside = stage.holder.sibling().await?;
    let stays = matches!(beside, Party::Java(_));
    ensure!(holder.try_set(2).await?, "it was closed");
    let beside = tokio::spawn(async move { beside.latch(name).wait().await });
    let channel = latch_channel(name);
    let delete = async {
        crate::world::until("both listen", || world.listeners(&channel) == 2).await?;
        world.asleep_on(&channel).await?;
        let from = Stamp::now();
        ensure!(holder.delete().await?, "it was closed");
        Ok(from)
    };
    let (waited, from) = tokio::try_join!(other.wait(), delete)?;
    ensure!(waited.to > from, "it went on before");
    let late = waited.to.since(from);
    agree(stage, name, 0).await?;
    if stays {
        // Java's waiter goes on only if it was not asleep yet when the latch was deleted, and nothing shows when it is.
        ensure!(other.try_set(1).await?, "it was closed");
        other.count_down().await?;
    }
    beside.await??;
    settle(stage, name).await?;
    Ok(format!("went on after {:.1} ms", late.as_secs_f64() * 1e3))
}
