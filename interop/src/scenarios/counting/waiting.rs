//! Waiters for permits: they are woken when there are enough, and leave nothing behind when they give up.

use std::time::Duration;

use super::{agree, settle};
use crate::failure::{Outcome, ensure};
use crate::party::Party;
use crate::scenarios::Wakes;
use crate::stage::Stage;
use crate::world::{semaphore_channel, until};

/// A sleeping waiter has the permit soon after it is released, by the one message: Java would wait for another one for ever, and our waiter
/// would poll only after two seconds.
pub(crate) async fn wakes(stage: &mut Stage) -> Outcome<String> {
    let name = "counting-wake";
    ensure!(stage.other.counting(name).try_set(1).await?, "it was there");
    let rounds = stage.world.pace.rounds(6);
    let mut wakes = Wakes::default();
    while wakes.another(rounds)? {
        wakes.add(one_wake(stage, name).await?);
    }
    settle(stage, name, name, 1).await?;
    Ok(wakes.remark())
}

async fn one_wake(stage: &Stage, name: &str) -> Outcome<Duration> {
    let (holder, other) = (stage.holder.counting(name), stage.other.counting(name));
    let world = &stage.world;
    holder.take(1).await?;
    let messages = world.messages();
    let give_back = async {
        world.asleep_on(&semaphore_channel(name)).await?;
        holder.release(1).await
    };
    let (waited, freed) = tokio::try_join!(other.take(1), give_back)?;
    ensure!(waited.to > freed.from, "it had the permit before");
    let messages = world.messages() - messages;
    ensure!(messages == 1, "it sent {messages} messages");
    other.release(1).await?;
    Ok(waited.to.since(freed.from))
}

/// A waiter for three permits has them when the third comes back, and none before.
pub(crate) async fn several(stage: &mut Stage) -> Outcome<String> {
    let name = "counting-several";
    let (holder, other) = (stage.holder.counting(name), stage.other.counting(name));
    ensure!(other.try_set(3).await?, "it was there");
    holder.take(3).await?;
    let give_back = async {
        stage.world.asleep_on(&semaphore_channel(name)).await?;
        for back in 1..=2 {
            holder.release(1).await?;
            let there = holder.available().await?;
            ensure!(there == back, "{there} are there, not {back}");
        }
        holder.release(1).await
    };
    let (waited, freed) = tokio::try_join!(other.take(3), give_back)?;
    ensure!(waited.to > freed.from, "it had all before all were back");
    let late = waited.to.since(freed.from);
    agree(stage, name, 0).await?;
    other.release(3).await?;
    settle(stage, name, name, 3).await?;
    Ok(format!("woken after {:.1} ms", late.as_secs_f64() * 1e3))
}

/// Every other waiter of ours queues behind one of ours that waits for three permits. Java has no such queue: it passes, and is passed.
pub(crate) async fn in_line(stage: &mut Stage) -> Outcome<String> {
    let name = "counting-line";
    let Stage {
        world,
        build,
        terms,
        ..
    } = &*stage;
    let jvm = world.peer(build).await?;
    let mut java = Party::java(world, &jvm, *terms).await?;
    let mut ours = Party::ours(world, *terms).await?;
    let ours_waits = matches!(stage.other, Party::Ours(_));
    let (holder, other) = (stage.holder.counting(name), stage.other.counting(name));
    ensure!(other.try_set(3).await?, "it was there");
    holder.take(3).await?;
    let give_back = async {
        world.asleep_on(&semaphore_channel(name)).await?;
        holder.release(2).await?;
        for (party, passes) in [(&java, true), (&ours, !ours_waits)] {
            let took = party.counting(name).try_take(1).await?;
            let who = party.title();
            ensure!(took == passes, "{who} passed one that waits: {took}");
            if took {
                party.counting(name).release(1).await?;
            }
        }
        holder.release(1).await
    };
    let (waited, freed) = tokio::try_join!(other.take(3), give_back)?;
    ensure!(waited.to > freed.from, "it had all before all were back");
    ours.close().await?;
    java.close().await?;
    other.release(3).await?;
    settle(stage, name, name, 3).await?;
    Ok(String::new())
}

/// A wait that timed out has acquired nothing, and leaves no subscription and no queue entry: for one permit, and for more than there are.
pub(crate) async fn ends_on_time(stage: &mut Stage) -> Outcome<String> {
    let name = "counting-patience";
    let wait = Duration::from_millis(600);
    let world = &stage.world;
    let (holder, other) = (stage.holder.counting(name), stage.other.counting(name));
    ensure!(holder.try_set(2).await?, "it was there");
    holder.take(2).await?;
    for there in [0, 1] {
        let look = async {
            let channel = semaphore_channel(name);
            world.asleep_on(&channel).await?;
            world.hears_only(&channel)
        };
        let ((got, span), ()) = tokio::try_join!(other.take_within(there + 1, wait), look)?;
        ensure!(!got, "it got one more than there are");
        let took = span.took();
        ensure!(took >= wait * 9 / 10, "it gave up after {took:?}");
        agree(stage, name, there.into()).await?;
        world.forget_done()?;
        let alone =
            || world.server().keys() == [name] && world.server().pubsub_channels().is_empty();
        until("nothing is left of the wait", alone).await?;
        holder.release(1).await?;
    }
    // No waiter consumes the released permits: the next acquire needs no wait.
    ensure!(other.try_take(2).await?, "both were back");
    other.release(2).await?;
    settle(stage, name, name, 2).await?;
    Ok(String::new())
}
