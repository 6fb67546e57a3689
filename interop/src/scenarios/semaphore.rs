//! The semaphore: one number of permits for both sides.

mod ends;
mod sharing;

use std::time::Duration;

use super::LONG;
use crate::failure::{Outcome, ensure};
use crate::party::{Party, Term};
use crate::stage::Stage;
use crate::world::{World, until};

pub(super) use ends::{by_id, dead, expires, is_kept};
pub(super) use sharing::{counted, odd_names, prefixed, raised, several, wakes};

/// Checks that both sides report the same number of available permits.
async fn agree(stage: &Stage, name: &str, there: i64) -> Outcome {
    for party in [&stage.holder, &stage.other] {
        let (said, who) = (party.available(name).await?, party.title());
        ensure!(said == there, "{who} sees {said} permits, not {there}");
    }
    Ok(())
}

/// Tries once to acquire this many permits and must be told that there are not enough.
async fn is_refused(party: &mut Party, name: &str, count: u32) -> Outcome {
    let got = party.try_take(name, count, Term::Kept).await?;
    let who = party.title();
    ensure!(got.is_none(), "{who} got {count} that are not there");
    Ok(())
}

/// Checks that all permits are available again, and that nothing else is left of the semaphore; then deletes it.
async fn settle(stage: &Stage, name: &str, key: &str, total: u32) -> Outcome {
    let Stage {
        world,
        holder,
        other,
        ..
    } = stage;
    for (party, was) in [(holder, true), (other, false)] {
        if was {
            agree(stage, name, total.into()).await?;
            forget_clients(world)?;
            only_the_number(world, key, total).await?;
        }
        let deleted = party.delete_semaphore(name).await?;
        let who = party.title();
        ensure!(deleted == was, "{who} deleted it: {deleted}");
    }
    Ok(())
}

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes the keys that name the clients of permits in use. They are kept for as long as these permits are ours, and for a day longer if
/// one of Java's came back last: the key proves that the permits are a semaphore's.
fn forget_clients(world: &World) -> Outcome {
    for key in world.server().keys() {
        if key.starts_with("distlock_clients:") {
            let left = world.server().pttl(&key);
            let longest = i64::try_from((LONG + A_DAY).as_millis())?;
            let gone = left == -2;
            ensure!(
                gone || (0..=longest).contains(&left),
                "`{key}` ends in {left} ms"
            );
            world.server().cmd(&["DEL", &key]);
        }
    }
    Ok(())
}

/// Checks that the store has nothing but the number of permits.
pub(crate) async fn only_the_number(world: &World, key: &str, total: u32) -> Outcome {
    let alone = || {
        let there: Option<String> = world.server().query(&["GET", key]);
        world.server().keys() == [key] && there == Some(total.to_string())
    };
    until("only the number is left", alone)
        .await
        .map_err(|failure| failure.during(format_args!("{:?}", world.server().keys())))
}
