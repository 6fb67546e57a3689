//! Locks on one of several servers: the same behaviour as on a single server, and a failover.

use std::time::Duration;

use super::{LONG, Wakes};
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::{Party, Term};
use crate::stage::Stage;
use crate::world::{World, until};

/// A sleeping waiter has the lock soon after its unlock, both ways round. It is the message that wakes it: Java would sleep for minutes,
/// and our waiter for two seconds.
pub(super) async fn wakes(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let rounds = world.pace.rounds(6);
    holder.lock(NAME, Term::Fixed(LONG)).await?;
    let (mut there, mut back) = (Wakes::default(), Wakes::default());
    while there.another(rounds)? || back.another(rounds)? {
        for wakes in [&mut there, &mut back] {
            wakes.add(handed_over(world, holder, other).await?);
            std::mem::swap(holder, other);
        }
    }
    holder.unlock(NAME).await?.done()?;
    Ok(format!("{}, back: {}", there.remark(), back.remark()))
}

/// Unlocks while the other side sleeps; returns how long after the request for it the other side had the lock.
async fn handed_over(world: &World, leaves: &mut Party, waits: &mut Party) -> Outcome<Duration> {
    let leave = async {
        world.asleep(NAME).await?;
        leaves.unlock(NAME).await?.done()
    };
    let (waited, freed) = tokio::try_join!(waits.lock(NAME, Term::Fixed(LONG)), leave)?;
    ensure!(
        waited.to > freed.from,
        "it had the lock before it was unlocked"
    );
    leaves.is_excluded(NAME).await?;
    Ok(waited.to.since(freed.from))
}

/// The server is killed while one side holds the lock and the other waits for it. On the promoted server the hold is kept and renewed, the
/// waiter waits on and other clients are kept out; the unlock wakes it there, and from then on all is as before.
pub(super) async fn is_survived(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    holder.lock(NAME, Term::Kept).await?;
    let owner = holder.owner(NAME)?;
    let mut third = other.sibling().await?;
    let die = async {
        world.asleep(NAME).await?;
        let began = Stamp::now();
        world.fail_over();
        // The waiter has reached the promoted server, and is subscribed there.
        world.asleep(NAME).await?;
        let took = Stamp::now().since(began);
        let left = world.left(NAME)?;
        until("it is renewed there", || {
            world.left(NAME).is_ok_and(|now| now > left)
        })
        .await?;
        let seen = world.server().hgetall(NAME);
        let expected = [(owner.clone(), "1".to_owned())].into();
        ensure!(seen == expected, "the lock is {seen:?}, not {expected:?}");
        third.is_excluded(NAME).await?;
        ensure!(holder.is_held(NAME).await?, "its holder has lost it");
        Ok((holder.unlock(NAME).await?.done()?, took))
    };
    let (waited, (freed, took)) = tokio::try_join!(other.lock(NAME, Term::Fixed(LONG)), die)?;
    ensure!(
        waited.to > freed.from,
        "it had the lock before it was unlocked"
    );
    let late = waited.to.since(freed.from);
    holder.is_excluded(NAME).await?;
    for _ in 0..2 {
        std::mem::swap(holder, other);
        handed_over(world, holder, other).await?;
    }
    other.unlock(NAME).await?.done()?;
    holder.finds_lock_free(NAME).await?;
    Ok(format!(
        "waits at the next after {:.1} s, woken after {:.1} ms",
        took.as_secs_f64(),
        late.as_secs_f64() * 1e3
    ))
}

const NAME: &str = "failover";
