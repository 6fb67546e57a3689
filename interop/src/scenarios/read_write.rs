//! The read/write lock: readers of both sides together, or one writer of either.

mod crowds;
mod leases;
mod sides;
mod turns;

pub(super) use crowds::{readers_pass_a_writer, wakes_all_readers};
pub(super) use leases::{dead_reader, forced, watchdogs};
pub(super) use sides::{downgrades, reentry, upgrades};
pub(super) use turns::{beside, excludes, falls_asleep, meets, odd_names, prefixed, wakes};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Span;
use crate::failure::{Outcome, ensure};
use crate::party::{Party, Sides, Term};
use crate::stage::Stage;
use crate::world::{World, rw_channel};

/// Returns the party that holds the lock and the party that wants it, each with both sides of the lock.
pub(super) fn both(stage: &Stage) -> (Sides, Sides) {
    (Sides::of(&stage.holder), Sides::of(&stage.other))
}

/// Lets one party leave while another sleeps for the lock; returns how long after the request for it the other one had the lock. The unlock
/// sends exactly one message.
async fn handed_over(
    world: &World,
    key: &str,
    name: &str,
    leaves: &mut Party,
    waits: &mut Party,
) -> Outcome<Duration> {
    let messages = world.messages();
    let leave = async {
        world.asleep_on(&rw_channel(key)).await?;
        leaves.unlock(name).await?.done()
    };
    let (waited, freed) = tokio::try_join!(waits.lock(name, Term::Kept), leave)?;
    ensure!(
        waited.to > freed.from,
        "it had the lock before it was unlocked"
    );
    let messages = world.messages() - messages;
    ensure!(messages == 1, "the unlock sent {messages} messages");
    Ok(after(waited, freed))
}

fn after(waited: Span, freed: Span) -> Duration {
    waited.to.since(freed.from)
}

/// Returns the content of the hash.
fn seen(world: &World, key: &str) -> BTreeMap<String, String> {
    world.server().query(&["HGETALL", key])
}

/// Checks that the hash has this mode and these owners, with these hold counts.
pub(super) fn is_held(world: &World, key: &str, mode: &str, owners: &[(String, u32)]) -> Outcome {
    let owners = owners
        .iter()
        .map(|(owner, count)| (owner.clone(), count.to_string()));
    let mut expected: BTreeMap<_, _> = owners.collect();
    expected.insert("mode".into(), mode.into());
    let seen = seen(world, key);
    ensure!(seen == expected, "the lock is {seen:?}, not {expected:?}");
    Ok(())
}

/// Checks that the party acquires the lock at once.
async fn acquires_at_once(party: &mut Party, name: &str) -> Outcome {
    let (granted, _) = party.try_lock(name, Duration::ZERO, Term::Kept).await?;
    ensure!(granted, "{} was kept out of `{name}`", party.title());
    Ok(())
}
