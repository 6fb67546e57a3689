//! Changes of the number of permits: set, added, drained, deleted.

use std::time::Duration;

use super::{agree, is_refused, settle};
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::Party;
use crate::stage::Stage;
use crate::world::semaphore_channel;

/// The number is set once, by either side, until the semaphore is deleted; and a release without a semaphore creates one.
pub(crate) async fn set(stage: &mut Stage) -> Outcome<String> {
    let name = "counting-set";
    let (holder, other) = (stage.holder.counting(name), stage.other.counting(name));
    agree(stage, name, 0).await?;
    is_refused(&stage.holder, name, 1).await?;
    is_refused(&stage.other, name, 1).await?;
    ensure!(holder.try_set(3).await?, "somebody had said how many");
    for semaphore in [&other, &holder] {
        ensure!(!semaphore.try_set(5).await?, "it was said twice");
    }
    agree(stage, name, 3).await?;
    ensure!(
        stage.world.server().pttl(name) == -1,
        "the number has an end"
    );
    ensure!(other.delete().await?, "it was there");
    agree(stage, name, 0).await?;
    ensure!(!holder.delete().await?, "it was forgotten twice");
    holder.release(2).await?;
    agree(stage, name, 2).await?;
    ensure!(!other.try_set(3).await?, "it was there");
    ensure!(other.try_take(2).await?, "two were there");
    other.release(2).await?;
    settle(stage, name, name, 2).await?;
    Ok(String::new())
}

/// Added permits wake waiters, a number below zero is made up for first, and a drain acquires exactly the available permits.
pub(crate) async fn added(stage: &mut Stage) -> Outcome<String> {
    let name = "counting-add";
    let world = &stage.world;
    let (holder, other) = (stage.holder.counting(name), stage.other.counting(name));
    let channel = semaphore_channel(name);
    let asleep = || world.asleep_on(&channel);
    ensure!(holder.try_set(1).await?, "it was there");
    holder.take(1).await?;
    let more = async {
        asleep().await?;
        let messages = world.messages();
        let added = holder.add(2).await?;
        Ok((added, world.messages() - messages))
    };
    let (waited, (added, messages)) = tokio::try_join!(other.take(2), more)?;
    let told = matches!(stage.holder, Party::Ours(_)) || stage.build.tells_of_added_permits();
    ensure!(
        messages == u64::from(told),
        "there were {messages} messages"
    );
    let late = waited.to.since(added.from);
    agree(stage, name, 0).await?;

    // Java reports a number below zero, our client reports zero; neither takes it for a permit.
    let fewer = async {
        asleep().await?;
        holder.add(-2).await?;
        let there = holder.available().await?;
        ensure!(there == -2, "there are {there}, not two fewer than none");
        holder.release(2).await?;
        holder.release(1).await
    };
    let (waited, freed) = tokio::try_join!(other.take(1), fewer)?;
    ensure!(waited.to > freed.from, "it had one of fewer than none");
    agree(stage, name, 0).await?;

    holder.add(5).await?;
    drained(&stage.holder, name, 5).await?;
    agree(stage, name, 0).await?;
    drained(&stage.other, name, 0).await?;
    holder.release(5).await?;
    drained(&stage.other, name, 5).await?;
    // If the number is below zero, a drain of Redisson sets it to zero and returns it; ours leaves it.
    other.add(-2).await?;
    agree(stage, name, -2).await?;
    if matches!(stage.holder, Party::Java(_)) {
        drained(&stage.holder, name, -2).await?;
        agree(stage, name, 0).await?;
        holder.add(-2).await?;
    } else {
        drained(&stage.holder, name, 0).await?;
    }
    agree(stage, name, -2).await?;
    other.release(6).await?;
    settle(stage, name, name, 4).await?;
    Ok(format!("woken after {:.1} ms", late.as_secs_f64() * 1e3))
}

async fn drained(party: &Party, name: &str, expected: i64) -> Outcome {
    let drained = party.counting(name).drain().await?;
    let who = party.title();
    ensure!(drained == expected, "{who} took {drained}, not {expected}");
    Ok(())
}

/// A waiter waits on when the semaphore is deleted, until the number of permits is set anew.
pub(crate) async fn forgotten(stage: &mut Stage) -> Outcome<String> {
    let name = "counting-forget";
    let world = &stage.world;
    let channel = semaphore_channel(name);
    let (holder, other) = (stage.holder.counting(name), stage.other.counting(name));
    ensure!(holder.try_set(1).await?, "it was there");
    holder.take(1).await?;
    let anew = async {
        world.asleep_on(&channel).await?;
        ensure!(holder.delete().await?, "it was there");
        tokio::time::sleep(A_WHILE).await;
        let listeners = world.listeners(&channel);
        ensure!(listeners == 1, "{listeners} listen: it waits no more");
        let from = Stamp::now();
        ensure!(holder.try_set(2).await?, "somebody had said how many");
        Ok(from)
    };
    let (waited, from) = tokio::try_join!(other.take(2), anew)?;
    ensure!(waited.to > from, "it had what was forgotten");
    let late = waited.to.since(from);
    agree(stage, name, 0).await?;
    other.release(2).await?;
    settle(stage, name, name, 2).await?;
    Ok(format!("woken after {:.1} ms", late.as_secs_f64() * 1e3))
}

const A_WHILE: Duration = Duration::from_millis(300);
