//! Changes from one side of the lock to the other, and re-entries into the same side.

use std::time::Duration;

use super::super::LONG;
use super::{acquires_at_once, after, both, handed_over, is_held};
use crate::failure::{Outcome, ensure};
use crate::party::Term;
use crate::stage::Stage;
use crate::world::rw_channel;

/// A writer goes on as a reader, and the other side's readers come in: at once after a downgrade of ours. Java's sends no message, so
/// waiters poll; a reader that comes later is let in.
pub(in super::super) async fn downgrades(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    let name = "rw-down";
    let mut latest = Duration::ZERO;
    for in_two_steps in [false, true] {
        holder.write.lock(name, Term::Fixed(LONG)).await?;
        let messages = world.messages();
        let down = async {
            world.asleep_on(&rw_channel(name)).await?;
            if in_two_steps {
                holder.read_on(name).await
            } else {
                holder.downgrade(name).await
            }
        };
        let (waited, down) = tokio::try_join!(other.read.lock(name, Term::Kept), down)?;
        ensure!(waited.to > down.from, "it read while the other wrote");
        let (told, late) = (world.messages() - messages, after(waited, down));
        latest = latest.max(late);
        let expected = u64::from(!holder.is_java());
        ensure!(told == expected, "the downgrade sent {told} messages");
        let owners = [(holder.read.owner(name)?, 1), (other.read.owner(name)?, 1)];
        is_held(world, name, "read", &owners)?;
        other.read.unlock(name).await?.done()?;
        // The lock is still a reader's, and the next reader comes in without waiting.
        other.write.is_excluded(name).await?;
        acquires_at_once(&mut other.read, name).await?;
        other.read.unlock(name).await?.done()?;
        handed_over(world, name, name, &mut holder.read, &mut other.write).await?;
        other.write.unlock(name).await?.done()?;
    }
    Ok(format!("at most {} ms", latest.as_millis()))
}

/// The hold count of each owner is in the hash, and the other side waits until all holds are released.
pub(in super::super) async fn reentry(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    let name = "rw-reentry";
    let term = Term::Fixed(LONG);
    for count in 1..=3 {
        holder.read.lock(name, term).await?;
        is_held(world, name, "read", &[(holder.read.owner(name)?, count)])?;
    }
    for left in [2, 1] {
        holder.read.unlock(name).await?.done()?;
        is_held(world, name, "read", &[(holder.read.owner(name)?, left)])?;
        other.write.is_excluded(name).await?;
        acquires_at_once(&mut other.read, name).await?;
        other.read.unlock(name).await?.done()?;
        let seen = holder.read.hold_count(name).await?;
        ensure!(seen == u64::from(left), "it holds it {seen} times");
    }
    holder.read.unlock(name).await?.done()?;
    other.write.finds_lock_free(name).await?;

    for count in 1..=3 {
        holder.write.lock(name, term).await?;
        let writer = format!("{}:write", holder.write.owner(name)?);
        is_held(world, name, "write", &[(writer, count)])?;
    }
    // Redisson adds up the leases that it is given.
    let left = world.left(name)?;
    ensure!(
        (left > LONG) == holder.is_java(),
        "{left:?} are left of three times {LONG:?}"
    );
    // The writer reads under its own write lock.
    for _ in 0..2 {
        acquires_at_once(&mut holder.read, name).await?;
        other.read.is_excluded(name).await?;
    }
    for _ in 0..2 {
        holder.read.unlock(name).await?.done()?;
        other.read.is_excluded(name).await?;
    }
    for _ in 0..3 {
        other.read.is_excluded(name).await?;
        other.write.is_excluded(name).await?;
        holder.write.unlock(name).await?.done()?;
    }
    other.write.finds_lock_free(name).await?;
    other.read.finds_lock_free(name).await?;
    Ok(String::new())
}

/// A reader of ours may write if there is no other reader, Java's among them. Java's reader never may.
pub(in super::super) async fn upgrades(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    let name = "rw-up";
    holder.read.lock(name, Term::Kept).await?;
    if holder.is_java() {
        holder.write.is_excluded(name).await?;
        // Our reader may not either, while Java's reads beside it.
        acquires_at_once(&mut other.read, name).await?;
        ensure!(!other.upgrade(name).await?, "it writes while Java reads");
        other.read.unlock(name).await?.done()?;
        holder.read.unlock(name).await?.done()?;
        return Ok(String::new());
    }
    other.read.lock(name, Term::Kept).await?;
    ensure!(!holder.upgrade(name).await?, "it writes while Java reads");
    is_held(
        world,
        name,
        "read",
        &[(holder.read.owner(name)?, 1), (other.read.owner(name)?, 1)],
    )?;
    other.read.unlock(name).await?.done()?;
    ensure!(holder.upgrade(name).await?, "it reads alone");
    other.write.is_excluded(name).await?;
    handed_over(world, name, name, &mut holder.write, &mut other.read).await?;
    ensure!(holder.read.is_held(name).await?, "it reads again");
    other.read.unlock(name).await?.done()?;
    other.write.is_excluded(name).await?;
    handed_over(world, name, name, &mut holder.read, &mut other.write).await?;
    other.write.unlock(name).await?.done()?;
    Ok(String::new())
}
