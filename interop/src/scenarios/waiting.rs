//! Waiting: until a message, or until a timeout.

use std::time::Duration;

use super::{BRIEF, LONG, ROUNDING, Wakes};
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::{Party, Term};
use crate::stage::Stage;

/// A sleeping waiter has the lock after its unlock, and it is the message that wakes it: the lease has minutes to go, and without the
/// message it sleeps on.
pub(super) async fn wakes(stage: &mut Stage) -> Outcome<String> {
    let name = "wake";
    let rounds = stage.world.pace.rounds(6);
    let mut wakes = Wakes::default();
    while wakes.another(rounds)? {
        wakes.add(one_wake(stage, name).await?);
    }
    sleeps_without_message(stage, name).await?;
    Ok(wakes.remark())
}

/// Returns how long after the request for the unlock the waiter had the lock. There was one message, whether or not it came in time.
async fn one_wake(stage: &mut Stage, name: &str) -> Outcome<Duration> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    holder.lock(name, Term::Fixed(LONG)).await?;
    let messages = world.messages();
    let unlock = async {
        world.asleep(name).await?;
        holder.unlock(name).await?.done()
    };
    let (waited, freed) = tokio::try_join!(other.lock(name, Term::Kept), unlock)?;
    ensure!(
        waited.to > freed.from,
        "it had the lock before it was unlocked"
    );
    let messages = world.messages() - messages;
    ensure!(messages == 1, "the unlock sent {messages} messages");
    other.unlock(name).await?.done()?;
    Ok(waited.to.since(freed.from))
}

/// Checks that the waiter sleeps on when the key goes without a message, and wakes when the message comes.
async fn sleeps_without_message(stage: &mut Stage, name: &str) -> Outcome {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    holder.lock(name, Term::Fixed(LONG)).await?;
    let tell = async {
        let channel = world.asleep(name).await?;
        world.server().cmd(&["DEL", name]);
        tokio::time::sleep(Duration::from_millis(400)).await;
        let told = Stamp::now();
        world.server().cmd(&["PUBLISH", &channel, "0"]);
        Ok(told)
    };
    // Our waiter polls every two seconds, with or without a message.
    let polls = matches!(other, Party::Ours(_));
    let (waited, told) = tokio::try_join!(other.lock(name, Term::Kept), tell)?;
    ensure!(polls || waited.to >= told, "it woke without a message");
    holder.unlock(name).await?.refused()?;
    other.unlock(name).await?.done()?;
    Ok(())
}

/// A wait with a timeout ends then, without the lock.
pub(super) async fn ends_on_time(stage: &mut Stage) -> Outcome<String> {
    let Stage { holder, other, .. } = stage;
    let name = "patience";
    holder.lock(name, Term::Kept).await?;
    let mut latest = Duration::ZERO;
    for wait in [BRIEF, Duration::from_secs(1)] {
        let (granted, span) = other.try_lock(name, wait, Term::Kept).await?;
        let took = span.took();
        ensure!(!granted, "it got a lock that is held");
        ensure!(
            took + ROUNDING >= wait,
            "it gave up after {took:?} of {wait:?}"
        );
        latest = latest.max(took.saturating_sub(wait));
    }
    holder.unlock(name).await?.done()?;
    other.soon_finds_it_free(name).await?;
    Ok(format!("at most {:.1} ms late", latest.as_secs_f64() * 1e3))
}
