//! The fair lock: one queue for both sides.

mod deaths;
mod mix;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

pub(super) use self::deaths::{dead_java, dead_ours};
pub(super) use self::mix::{long_mix, mix};
use super::LONG;
use crate::clock::Span;
use crate::failure::{Failure, Outcome, ensure};
use crate::party::{Kind, Party, Term};
use crate::stage::{Settings, Stage};
use crate::world::World;

/// Threads of Java's and tasks of ours by turns, some of one client and some of clients of their own, acquire the lock in queue order.
pub(super) async fn in_order(stage: &mut Stage) -> Outcome<String> {
    let name = "fair-order";
    let rounds = stage.world.pace.rounds(3);
    for _ in 0..rounds {
        stage.holder.lock(name, Term::Kept).await?;
        let mut line = QueuedWaiters::new(&stage.world, name);
        for party in crowd(stage).await? {
            line.join(party, LONG).await?;
        }
        stage.holder.unlock(name).await?.done()?;
        close_all(line.are_served().await?).await?;
        stage.world.is_clean().await?;
    }
    Ok(format!("{rounds} times {CROWD}"))
}

/// The first, the last and some waiters in between give up.
pub(super) async fn some_give_up(stage: &mut Stage) -> Outcome<String> {
    let name = "fair-leave";
    // Long enough for all of them to queue before the first one gives up.
    let brief = Duration::from_secs(12);
    let world = stage.world.clone();
    stage.holder.lock(name, Term::Kept).await?;
    let mut line = QueuedWaiters::new(&world, name);
    let (mut leaving, mut left) = (Vec::new(), Vec::new());
    for (number, party) in crowd(stage).await?.into_iter().enumerate() {
        if [0, 3, 4, CROWD - 1].contains(&number) {
            leaving.push(line.stand(party, brief).await?);
        } else {
            line.join(party, LONG).await?;
        }
    }
    for waiting in leaving {
        let waited = waiting.await??;
        ensure!(!waited.granted, "it got a lock that is held");
        left.push(waited.party);
    }
    // The last waiter of ours has given up a moment before it leaves the queue.
    world.until_queued(name, line.waiting.len()).await?;
    stage.holder.unlock(name).await?.done()?;
    left.extend(line.are_served().await?);
    close_all(left).await?;
    Ok(String::new())
}

/// Unlocks after the lease has expired: first while another party holds the lock, then while it is free.
pub(super) async fn lost(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let name = "fair-lost";
    let lease = Duration::from_secs(1);
    holder.lock(name, Term::Fixed(lease)).await?;
    other.lock(name, Term::Kept).await?;
    holder.unlock(name).await?.refused()?;
    ensure!(other.is_held(name).await?, "it is still the other's");
    other.unlock(name).await?.done()?;

    holder.lock(name, Term::Fixed(lease)).await?;
    world.until_free(name).await?;
    let unlocked = holder.unlock(name).await?;
    match holder {
        // Redisson counts an unlock of a lock that is free as a success.
        Party::Java(_) => drop(unlocked.done()?),
        Party::Ours(_) => drop(unlocked.refused()?),
    }
    Ok(String::new())
}

/// A fair and a plain lock of one name are one lock in the store. A queued waiter is not notified of a plain lock's end, and polls.
pub(super) async fn beside_plain(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        build,
        ..
    } = stage;
    let name = "fair-plain";
    let plain = Settings {
        kind: Kind::Plain,
        ..stage.terms
    };
    let jvm = world.peer(build).await?;
    for mut plain in [
        Party::ours(world, plain).await?,
        Party::java(world, &jvm, plain).await?,
    ] {
        holder.lock(name, Term::Kept).await?;
        plain.is_excluded(name).await?;
        holder.unlock(name).await?.done()?;
        plain.lock(name, Term::Kept).await?;
        holder.is_excluded(name).await?;
        other.is_excluded(name).await?;
        plain.unlock(name).await?.done()?;
        plain.close().await?;
    }
    Ok(String::new())
}

/// Returns the parties that will queue: Java and distlock by turns, each side the first in one direction.
async fn crowd(stage: &Stage) -> Outcome<Vec<Party>> {
    let Stage {
        world,
        build,
        terms,
        holder,
        ..
    } = stage;
    let jvm = world.peer(build).await?;
    let ours_first = matches!(holder, Party::Java(_));
    let mut crowd: Vec<Party> = Vec::new();
    for number in 0..CROWD {
        let ours = (number % 2 == 0) == ours_first;
        // Every second party of each side shares the client of the one before it.
        let before = crowd.len().checked_sub(2).filter(|_| number % 4 >= 2);
        crowd.push(match (before.map(|at| &crowd[at]), ours) {
            (Some(before), _) => before.sibling().await?,
            (None, true) => Party::ours(world, *terms).await?,
            (None, false) => Party::java(world, &jvm, *terms).await?,
        });
    }
    Ok(crowd)
}

const CROWD: usize = 8;

/// The waiters, in the order in which they came.
struct QueuedWaiters {
    world: Arc<World>,
    name: &'static str,
    length: usize,
    waiting: Vec<JoinHandle<Outcome<Waited>>>,
}

struct Waited {
    party: Party,
    granted: bool,
    waited: Span,
    /// When the lock was released, if it was granted.
    unlocked: Option<Span>,
}

impl QueuedWaiters {
    fn new(world: &Arc<World>, name: &'static str) -> Self {
        Self {
            world: world.clone(),
            name,
            length: 0,
            waiting: Vec::new(),
        }
    }

    /// Queues a party, which is expected to be served.
    async fn join(&mut self, party: Party, patience: Duration) -> Outcome {
        let waiting = self.stand(party, patience).await?;
        self.waiting.push(waiting);
        Ok(())
    }

    async fn stand(
        &mut self,
        mut party: Party,
        patience: Duration,
    ) -> Outcome<JoinHandle<Outcome<Waited>>> {
        let name = self.name;
        let waiting = tokio::spawn(async move {
            let (granted, waited) = party.try_lock(name, patience, Term::Kept).await?;
            let unlocked = match granted {
                true => Some(party.unlock(name).await?.done()?),
                false => None,
            };
            Ok(Waited {
                party,
                granted,
                waited,
                unlocked,
            })
        });
        self.length += 1;
        self.world.until_queued(name, self.length).await?;
        Ok(waiting)
    }

    /// Checks that all of them acquire the lock, one after the other.
    async fn are_served(self) -> Outcome<Vec<Party>> {
        let mut served = Vec::new();
        let mut last: Option<(String, Span)> = None;
        for waiting in self.waiting {
            let done = tokio::time::timeout(PATIENCE, waiting).await;
            let done = done.map_err(|_| Failure::new("somebody in line was forgotten"))?;
            let done = done??;
            let who = done.party.title();
            ensure!(done.granted, "{who} was not served");
            if let Some((before, unlocked)) = &last {
                ensure!(
                    done.waited.to > unlocked.from,
                    "{who} had it before {before}, who came first"
                );
            }
            let unlocked = done.unlocked.ok_or_else(|| Failure::new("not unlocked"))?;
            last = Some((who, unlocked));
            served.push(done.party);
        }
        Ok(served)
    }
}

/// Closes each client once; some of the parties share one.
async fn close_all(parties: Vec<Party>) -> Outcome {
    let mut closed = BTreeSet::new();
    for mut party in parties {
        let is_first = match &party {
            Party::Java(thread) => closed.insert(thread.client().to_owned()),
            Party::Ours(_) => true,
        };
        if is_first {
            party.close().await?;
        }
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(120);
