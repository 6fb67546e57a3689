//! Opening: all waiters go on after the last count.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::{agree, settle};
use crate::clock::{Span, Stamp};
use crate::failure::{Outcome, ensure};
use crate::party::Party;
use crate::scenarios::Wakes;
use crate::scenarios::names::ODD;
use crate::stage::Stage;
use crate::world::{World, latch_channel, until};

/// A sleeping waiter goes on soon after the last count, by its one message: Java would wait for another one for ever, and our waiter would
/// poll again only after two seconds.
pub(crate) async fn opens(stage: &mut Stage) -> Outcome<String> {
    let name = "latch-open";
    let rounds = stage.world.pace.rounds(6);
    let mut wakes = Wakes::default();
    while wakes.another(rounds)? {
        wakes.add(one_opening(stage, name, name).await?);
    }
    settle(stage, name).await?;
    Ok(wakes.remark())
}

async fn one_opening(stage: &Stage, name: &str, key: &str) -> Outcome<Duration> {
    let (holder, other) = (stage.holder.latch(name), stage.other.latch(name));
    let world = &stage.world;
    ensure!(holder.try_set(2).await?, "it was closed");
    let messages = world.messages();
    let count = async {
        world.asleep_on(&latch_channel(key)).await?;
        holder.count_down().await?;
        let left = holder.count().await?;
        ensure!(left == 1, "{left} are left, not one");
        let told = world.messages() - messages;
        ensure!(told == 0, "{told} messages at one");
        holder.count_down().await
    };
    let (waited, opened) = tokio::try_join!(other.wait(), count)?;
    ensure!(waited.to > opened.from, "it went on before");
    let told = world.messages() - messages;
    ensure!(told == 1, "it sent {told} messages");
    Ok(waited.to.since(opened.from))
}

/// Three waiters of each side wait while both count as fast as they can: none goes on before the last count, and all do then.
pub(crate) async fn all_waiters(stage: &mut Stage) -> Outcome<String> {
    let name = "latch-all";
    let world = &stage.world;
    ensure!(stage.other.latch(name).try_set(2 * EACH).await?, "closed");
    let mut waiting = Vec::new();
    for _ in 0..3 {
        for party in [&stage.holder, &stage.other] {
            waiting.push(waits(party, name).await?);
        }
    }
    both_listen(world, name).await?;
    let (ours, theirs) = tokio::try_join!(
        counts(&stage.holder, name, EACH),
        counts(&stage.other, name, EACH)
    )?;
    let last = ours.max(theirs);
    let mut longest = Duration::ZERO;
    for (number, waiting) in waiting.into_iter().enumerate() {
        let waited = waiting.await??;
        ensure!(waited.to > last, "{number} went on before the last count");
        let late = waited.to.since(last);
        longest = longest.max(late);
    }
    settle(stage, name).await?;
    Ok(format!("longest {:.1} ms", longest.as_secs_f64() * 1e3))
}

/// The latch is set anew as often as it was opened: each time by the other side, while the side that did not set it counts.
pub(crate) async fn again(stage: &mut Stage) -> Outcome<String> {
    let name = "latch-again";
    let rounds = stage.world.pace.rounds(6);
    for round in 0..rounds {
        let (sets, counts) = if round % 2 == 0 {
            (&stage.holder, &stage.other)
        } else {
            (&stage.other, &stage.holder)
        };
        ensure!(sets.latch(name).try_set(1).await?, "round {round}: closed");
        agree(stage, name, 1).await?;
        let waiting = [waits(sets, name).await?, waits(counts, name).await?];
        both_listen(&stage.world, name).await?;
        let opened = counts.latch(name).count_down().await?;
        for waiting in waiting {
            let waited = waiting.await??;
            ensure!(waited.to > opened.from, "round {round}: it went on before");
        }
    }
    settle(stage, name).await?;
    Ok(format!("{rounds} times"))
}

/// Starts a waiter of the same client.
async fn waits(like: &Party, name: &'static str) -> Outcome<JoinHandle<Outcome<Span>>> {
    let party = like.sibling().await?;
    Ok(tokio::spawn(async move { party.latch(name).wait().await }))
}

/// Waits until a client of each side is subscribed.
async fn both_listen(world: &World, name: &str) -> Outcome {
    let channel = latch_channel(name);
    until("both sides listen", || world.listeners(&channel) == 2).await?;
    world.asleep_on(&channel).await
}

/// Counts down `often` times; returns when the last count began.
async fn counts(party: &Party, name: &str, often: u32) -> Outcome<Stamp> {
    let mut last = Stamp::now();
    for _ in 0..often {
        last = party.latch(name).count_down().await?.from;
    }
    Ok(last)
}

/// Each name is the same latch, and the same channel, on both sides: a latch's channel puts two more braces around those of its name.
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
    ensure!(stage.other.latch(name).try_set(1).await?, "it was closed");
    let count: Option<u64> = stage.world.server().query(&["GET", key]);
    ensure!(count == Some(1), "{count:?} in {key:?}");
    stage.holder.latch(name).count_down().await?;
    one_opening(stage, name, key).await?;
    settle(stage, name).await
}

/// The number of counts of each side.
const EACH: u32 = 60;
