//! Turns: which parties are let in, kept out, and woken.

use std::time::Duration;

use super::super::names::ODD;
use super::super::{BRIEF, LONG, POLLED, ROUNDING, Wakes};
use super::{acquires_at_once, both, handed_over, is_held};
use crate::clock::Stamp;
use crate::failure::{Failure, Outcome, ensure};
use crate::party::{Kind, Term};
use crate::stage::Stage;
use crate::support::SeededRng;
use crate::world::{reader_key, rw_channel};

/// Both sides read at the same time, in whatever order they come and go; no party writes meanwhile.
pub(in super::super) async fn beside(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    let name = "rw-beside";
    for term in [Term::Kept, Term::Fixed(LONG)] {
        for first_leaves_first in [true, false] {
            holder.read.lock(name, term).await?;
            acquires_at_once(&mut other.read, name).await?;
            let owners = [(holder.read.owner(name)?, 1), (other.read.owner(name)?, 1)];
            is_held(world, name, "read", &owners)?;
            for reader in [&holder.read, &other.read] {
                ensure!(reader.is_held(name).await?, "{} reads", reader.title());
                let count = reader.hold_count(name).await?;
                ensure!(count == 1, "{} holds it {count} times", reader.title());
            }
            let (first, last) = if first_leaves_first {
                (&mut holder, &mut other)
            } else {
                (&mut other, &mut holder)
            };
            first.write.is_excluded(name).await?;
            last.write.is_excluded(name).await?;
            first.read.unlock(name).await?.done()?;
            is_held(world, name, "read", &[(last.read.owner(name)?, 1)])?;
            first.write.is_excluded(name).await?;
            last.read.unlock(name).await?.done()?;
            first.write.finds_lock_free(name).await?;
            last.write.finds_lock_free(name).await?;
        }
    }
    Ok(String::new())
}

/// While one side writes, the other neither reads nor writes.
pub(in super::super) async fn excludes(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    let name = "rw-exclude";
    for term in [Term::Kept, Term::Fixed(LONG)] {
        holder.write.lock(name, term).await?;
        let writer = format!("{}:write", holder.write.owner(name)?);
        is_held(world, name, "write", &[(writer, 1)])?;
        for party in [&mut other.read, &mut other.write] {
            party.is_excluded(name).await?;
            let (granted, span) = party.try_lock(name, BRIEF, Term::Kept).await?;
            let took = span.took();
            ensure!(!granted, "{} got it while it is written", party.title());
            ensure!(took + ROUNDING >= BRIEF, "it gave up after {took:?}");
        }
        // A waiter that gave up leaves nothing behind for long that keeps readers out.
        holder.write.unlock(name).await?.done()?;
        other.read.soon_finds_it_free(name).await?;
        other.write.finds_lock_free(name).await?;
    }
    Ok(String::new())
}

/// A sleeping reader or writer has the lock soon after it is free, and it is the message that wakes it.
pub(in super::super) async fn wakes(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    let name = "rw-wake";
    let rounds = world.pace.rounds(5);
    let mut wakes: [Wakes; 3] = Default::default();
    while wakes.iter().try_fold(false, |more, wakes| {
        Ok::<_, Failure>(wakes.another(rounds)? || more)
    })? {
        let sides = [
            (Kind::Read, Kind::Write),
            (Kind::Write, Kind::Read),
            (Kind::Write, Kind::Write),
        ];
        for (wakes, (leaves, waits)) in wakes.iter_mut().zip(sides) {
            let (leaves, waits) = (holder.side(leaves), other.side(waits));
            leaves.lock(name, Term::Fixed(LONG)).await?;
            wakes.add(handed_over(world, name, name, leaves, waits).await?);
            waits.unlock(name).await?.done()?;
        }
        // The last of two readers notifies, not the first.
        holder.read.lock(name, Term::Fixed(LONG)).await?;
        let mut second = holder.sibling().await?;
        second.read.lock(name, Term::Fixed(LONG)).await?;
        let messages = world.messages();
        second.read.unlock(name).await?.done()?;
        let told = world.messages() - messages;
        ensure!(told == 0, "one of two readers told when it left");
        handed_over(world, name, name, &mut holder.read, &mut other.write).await?;
        other.write.unlock(name).await?.done()?;
    }
    Ok(wakes.map(|wakes| wakes.remark()).join(", "))
}

/// The writer leaves as the other side, whose request may have been refused, falls asleep. Redisson's message for this wakes waiters that
/// sleep already, and its own waiter may not be one of them yet: then it sleeps at a free lock, for the rest of the lease. Our waiter would
/// poll after two seconds.
pub(in super::super) async fn falls_asleep(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    let name = "rw-asleep";
    let mut random = SeededRng::from_env_or(20_201_013);
    let rounds = world.pace.rounds(300);
    let mut slept = 0;
    for round in 0..rounds {
        holder.write.lock(name, Term::Fixed(NAP)).await?;
        let leaves = Stamp::now() + Duration::from_micros(random.below(3_000));
        let leave = async {
            // Timers tick in milliseconds, and falling asleep takes a few microseconds.
            while Stamp::now() < leaves {
                tokio::task::yield_now().await;
            }
            holder.write.unlock(name).await?.done()
        };
        let (waited, freed) = tokio::try_join!(other.write.lock(name, Term::Kept), leave)?;
        ensure!(waited.to > freed.from, "round {round}: both wrote at once");
        slept += u32::from(super::after(waited, freed) > POLLED);
        other.write.unlock(name).await?.done()?;
    }
    // Without any message, every round would sleep.
    ensure!(
        slept * 2 <= rounds,
        "{slept} of {rounds} slept at a free lock"
    );
    Ok(format!("{slept} of {rounds} slept at a free lock"))
}

/// By every name, both sides mean the same lock, the same keys of its readers and the same channel.
pub(in super::super) async fn odd_names(stage: &mut Stage) -> Outcome<String> {
    for name in ODD {
        meets(stage, name, name)
            .await
            .map_err(|failure| failure.during(format_args!("{name:?}")))?;
    }
    Ok(format!("{} names", ODD.len()))
}

/// The prefix is part of the names of all these keys and channels.
pub(in super::super) async fn prefixed(stage: &mut Stage) -> Outcome<String> {
    let prefix = stage.terms.prefix;
    for name in ["order", "a{b}c"] {
        meets(stage, name, &format!("{prefix}{name}")).await?;
    }
    Ok(String::new())
}

pub(in super::super) async fn meets(stage: &Stage, name: &str, key: &str) -> Outcome {
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    holder.read.lock(name, Term::Fixed(LONG)).await?;
    acquires_at_once(&mut other.read, name).await?;
    let mut expected = vec![key.to_owned()];
    for reader in [&holder.read, &other.read] {
        expected.push(reader_key(key, &reader.owner(name)?, 1));
    }
    expected.sort();
    let mut keys = world.server().keys();
    keys.sort();
    ensure!(keys == expected, "the keys are {keys:?}, not {expected:?}");
    other.read.unlock(name).await?.done()?;

    handed_over(world, key, name, &mut holder.read, &mut other.write).await?;
    let keys = world.server().keys();
    ensure!(keys == [key], "the keys are {keys:?}, not {key:?}");
    let waits = async {
        world.asleep_on(&rw_channel(key)).await?;
        world.hears_only(&rw_channel(key))?;
        other.write.unlock(name).await?.done()
    };
    let (waited, freed) = tokio::try_join!(holder.read.lock(name, Term::Kept), waits)?;
    ensure!(waited.to > freed.from, "it read while the other wrote");
    holder.read.unlock(name).await?.done()?;
    world.is_clean().await
}

/// How long a waiter sleeps that is not woken.
const NAP: Duration = Duration::from_secs(5);
