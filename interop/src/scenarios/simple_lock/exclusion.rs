//! Mutual exclusion: one side holds the lock and the other does not; and then the other does.

use std::time::Duration;

use distlock::{Error, LockKind};

use super::super::BRIEF;
use super::super::names::ODD;
use super::is_still;
use crate::failure::{Outcome, ensure};
use crate::library::Library;
use crate::simple::{Lease, LockState, MINUTES, OurClient, Scripts, Side, Stage};
use crate::world::{World, until};

/// While one side holds a lock it is one string with the holder's value and a time to live, and the other does not acquire it.
pub(in super::super) async fn excludes(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
    } = stage;
    for (name, lease) in [
        ("simple-kept", Lease::Kept(MINUTES.time())),
        ("simple-fixed", MINUTES),
    ] {
        holder.lock(name, lease).await?;
        let keys = world.server().keys();
        ensure!(keys == [name], "the keys are {keys:?}");
        is_seen(holder, other, name, Some(lease)).await?;
        is_still(world, holder, other, name).await?;
        let (granted, _) = other.try_lock(name, BRIEF, MINUTES).await?;
        ensure!(!granted, "the other got `{name}` by waiting for {BRIEF:?}");

        holder.unlock(name).await?.done()?;
        other.lock(name, lease).await?;
        is_still(world, other, holder, name).await?;
        other.unlock(name).await?.done()?;
        holder.finds_lock_free(name).await?;
    }
    endless(holder, other).await
}

/// A lock of redis-py has no end unless it is given one: then only a release frees it.
async fn endless(holder: &mut Side, other: &mut Side) -> Outcome<String> {
    let name = "simple-endless";
    let Side::Theirs(client) = &mut *holder else {
        return Ok(String::new());
    };
    if client.library() != Library::RedisPy {
        return Ok(String::new());
    }
    client.lock(name, None).await?;
    is_seen(holder, other, name, None).await?;
    other.is_excluded(name).await?;
    let (granted, _) = other.try_lock(name, BRIEF, MINUTES).await?;
    ensure!(!granted, "we got a lock without an end by waiting");
    holder.unlock(name).await?.done()?;
    other.finds_lock_free(name).await?;
    Ok("also without an end".into())
}

/// Checks how each side describes a held lock, without a lease if it has no end.
async fn is_seen(holder: &Side, other: &Side, name: &str, lease: Option<Lease>) -> Outcome {
    let value = holder.value(name)?;
    for side in [holder, other] {
        match side {
            Side::Theirs(client) => {
                let seen = client.read_state(name).await?;
                let expected = LockState {
                    kind: "string".into(),
                    value: Some(value.clone()),
                    left: seen.left,
                    locked: true,
                };
                ensure!(seen == expected, "they see {seen:?}, not {expected:?}");
                match lease.map(Lease::time) {
                    None => ensure!(seen.left == -1, "it ends in {} ms", seen.left),
                    Some(time) => {
                        let left = Duration::from_millis(seen.left.try_into()?);
                        ensure!(
                            left <= time && left > time / 2,
                            "they see a lease of {left:?}, not of {time:?}"
                        );
                    }
                }
            }
            Side::Ours(client) => {
                let told = client.admin().inspect(name).await;
                let listed = client.admin().list("*").await?;
                if matches!(holder, Side::Ours(_)) {
                    for info in [told?, listed.into_iter().next()] {
                        let ours = info.filter(|info| info.kind == LockKind::Simple);
                        let holders = ours.map(|info| info.holders).unwrap_or_default();
                        let owners: Vec<String> =
                            holders.into_iter().map(|one| one.owner).collect();
                        ensure!(owners == [&*value], "of our own we see {owners:?}");
                    }
                } else {
                    // A string that is no lock of ours may be anything: it is neither listed nor described.
                    ensure!(listed.is_empty(), "we list {listed:?}");
                    ensure!(
                        matches!(told, Err(Error::WrongKind { .. })),
                        "we say {told:?} of theirs"
                    );
                }
            }
        }
    }
    Ok(())
}

/// A waiter retries again and again, and so has the lock soon after it is released. A release of the other libraries sends no message.
pub(in super::super) async fn hands_over(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
    } = stage;
    let name = "simple-handover";
    let rounds = world.pace.rounds(3);
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        holder.lock(name, MINUTES).await?;
        let messages = world.messages();
        let asked = questions(world);
        let unlock = async {
            // A subscribed waiter sends one more request when it has subscribed, and sleeps then.
            until("the other has asked", || questions(world) >= asked + 2).await?;
            holder.unlock(name).await?.done()
        };
        let (waited, freed) = tokio::try_join!(other.lock(name, MINUTES), unlock)?;
        ensure!(waited.to > freed.from, "it had the lock before");
        if matches!(holder, Side::Theirs(_)) {
            let messages = world.messages() - messages;
            ensure!(messages == 0, "the unlock sent {messages} messages");
        }
        let late = waited.to.since(freed.from);
        longest = longest.max(late);
        other.unlock(name).await?.done()?;
    }
    Ok(format!(
        "longest {:.0} ms of {rounds}",
        longest.as_secs_f64() * 1e3
    ))
}

/// Returns how many commands were sent that may be requests for a lock, of all the kinds that any client sends.
pub(super) fn questions(world: &World) -> u64 {
    let ways = ["set", "eval", "evalsha", "watch"];
    ways.map(|way| world.server().commandstats(way))
        .iter()
        .sum()
}

/// By every name, both sides mean the same key.
pub(in super::super) async fn names(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
    } = stage;
    for name in ODD {
        let meet = async {
            holder.lock(name, MINUTES).await?;
            let keys = world.server().keys();
            ensure!(keys == [name], "the keys are {keys:?}");
            is_still(world, holder, other, name).await?;
            holder.unlock(name).await?.done()?;
            other.finds_lock_free(name).await
        };
        meet.await
            .map_err(|failure| failure.during(format_args!("{name:?}")))?;
    }
    prefixed(stage).await?;
    Ok(format!("{} names", ODD.len()))
}

/// Our key prefix is a part of the name for the other libraries.
async fn prefixed(stage: &mut Stage) -> Outcome {
    let world = &stage.world;
    let url = world.server().url();
    let mut ours = Side::Ours(OurClient::connect(&url, Scripts::On, PREFIX).await?);
    let sides = [&mut stage.holder, &mut stage.other];
    let theirs = sides
        .into_iter()
        .find(|side| matches!(side, Side::Theirs(_)));
    let theirs = theirs.expect("one of them is theirs");
    let (name, key) = ("order", format!("{PREFIX}order"));

    theirs.lock(&key, MINUTES).await?;
    ours.is_excluded(name).await?;
    theirs.unlock(&key).await?.done()?;
    ours.lock(name, MINUTES).await?;
    theirs.is_excluded(&key).await?;
    theirs.finds_lock_free(name).await?;
    ours.unlock(name).await?.done()?;
    if let Side::Ours(client) = &mut ours {
        client.close().await?;
    }
    Ok(())
}

/// Our client without scripts uses other commands to the same effect.
pub(in super::super) async fn unscripted(stage: &mut Stage) -> Outcome<String> {
    excludes(stage).await?;
    hands_over(stage).await
}

const PREFIX: &str = "team-7:";
