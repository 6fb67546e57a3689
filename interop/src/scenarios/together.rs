//! Old Java, new Java and distlock, on one lock.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::checker::{self, Grant};
use crate::clock::Stamp;
use crate::failure::{Failure, Outcome, ensure};
use crate::party::{Party, Term};
use crate::stage::{Fleet, Settings};
use crate::world::{channel, until};

/// Every party holds the lock once while all others wait; then all take turns at their own pace.
pub(super) async fn play(fleet: &mut Fleet) -> Outcome<String> {
    let mut parties = Vec::new();
    for jvm in &fleet.peers {
        parties.push(Party::java(&fleet.world, jvm, Settings::DEFAULT).await?);
    }
    parties.push(Party::ours(&fleet.world, Settings::DEFAULT).await?);
    for _ in 0..parties.len() {
        relay(fleet, &mut parties).await?;
        parties.rotate_left(1);
    }
    let grants = turns(fleet, &mut parties).await?;
    fleet.world.is_clean().await?;
    for party in &mut parties {
        party.close().await?;
    }
    Ok(format!("{} took {grants} turns", parties.len()))
}

/// The first party holds the lock, the others wait; each unlock lets exactly one of them in, until all have had it.
async fn relay(fleet: &Fleet, parties: &mut Vec<Party>) -> Outcome {
    let name = "relay";
    parties[0].lock(name, Term::Kept).await?;
    let mut waiters = JoinSet::new();
    for mut party in parties.drain(1..) {
        waiters.spawn(async move {
            let span = party.lock(name, Term::Kept).await?;
            Ok::<_, Failure>((party, span))
        });
    }
    let count = waiters.len() as u64;
    let channel = channel(name);
    until("all others wait", || {
        fleet.world.listeners(&channel) == count
    })
    .await?;
    loop {
        let holder = parties.last_mut().expect("the first is there");
        let seen = holder.holders(name).await?;
        let expected = BTreeMap::from([(holder.owner(name)?, 1)]);
        ensure!(seen == expected, "it is held by {seen:?}, not {expected:?}");
        ensure!(
            waiters.try_join_next().is_none(),
            "somebody got it while {} held it",
            holder.title()
        );
        let freed = holder.unlock(name).await?.done()?;
        if waiters.is_empty() {
            return Ok(());
        }
        let next = tokio::time::timeout(PATIENCE, waiters.join_next()).await;
        let next = next.map_err(|_| Failure::new("nobody got it after an unlock"))?;
        let (party, span) = next.expect("somebody waits")??;
        ensure!(
            span.to > freed.from,
            "{} had it before the unlock",
            party.title()
        );
        parties.push(party);
    }
}

/// Lets all parties acquire the lock at the same time, each a number of times.
async fn turns(fleet: &Fleet, parties: &mut Vec<Party>) -> Outcome<usize> {
    let times = fleet.world.pace.rounds(30);
    let mut running = JoinSet::new();
    for mut party in parties.drain(..) {
        running.spawn(async move {
            let mut grants = Vec::new();
            for _ in 0..times {
                let span = party.lock(TURNS, Term::Kept).await?;
                let seen = party.holders(TURNS).await?;
                let expected = BTreeMap::from([(party.owner(TURNS)?, 1)]);
                ensure!(seen == expected, "it is {seen:?}, not {expected:?}");
                let to = Stamp::now();
                grants.push(Grant {
                    name: TURNS.into(),
                    who: party.title(),
                    from: span.to,
                    to,
                    token: None,
                });
                party.unlock(TURNS).await?.done()?;
            }
            Ok::<_, Failure>((party, grants))
        });
    }
    let mut all = Vec::new();
    while let Some(done) = running.join_next().await {
        let (party, grants) = done??;
        parties.push(party);
        all.extend(grants);
    }
    let grants = all.len();
    let overlaps = checker::overlaps(all);
    ensure!(
        overlaps.is_empty(),
        "two held it at once: {:?}",
        overlaps[0]
    );
    Ok(grants)
}

const TURNS: &str = "together";
const PATIENCE: Duration = Duration::from_secs(10);
