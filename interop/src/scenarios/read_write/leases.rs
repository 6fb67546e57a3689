//! Leases of readers: each reader has a lease of its own.

use std::time::Duration;

use tokio::time::sleep;

use super::super::deaths::{Death, HolderProcess};
use super::super::{LONG, ROUNDING};
use super::both;
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::{JavaThread, Kind, Party, Sides, Term};
use crate::stage::{Settings, Stage};
use crate::world::{World, rw_channel};

/// One party reads for long and with a fixed lease; beside it, the other side renews its own lease by the watchdog, which sets the
/// remaining lease of the whole lock. The first keeps its hold, while the other is there and when it has left or was killed.
pub(in super::super) async fn watchdogs(stage: &mut Stage) -> Outcome<String> {
    let mortal = HolderProcess::lock(stage, reading(stage), Death::Kill, WATCHED).await?;
    let (mut holder, mut other) = both(stage);
    let time = stage.terms.watchdog * 5 / 4;
    let mut writers = [writer(stage, false).await?, writer(stage, true).await?];
    other.read.lock(WATCHED, Term::Fixed(LONG)).await?;
    let beside = reads_on(stage, &other, &mut writers, time).await?;
    mortal.die(WATCHED).await?;
    reads_on(stage, &other, &mut writers, time).await?;

    holder.read.lock(WATCHED, Term::Kept).await?;
    reads_on(stage, &other, &mut writers, time).await?;
    ensure!(holder.read.is_held(WATCHED).await?, "it was not kept");
    holder.read.unlock(WATCHED).await?.done()?;
    reads_on(stage, &other, &mut writers, time).await?;

    other.read.unlock(WATCHED).await?.done()?;
    for writer in &mut writers {
        writer.finds_lock_free(WATCHED).await?;
        writer.close().await?;
    }
    Ok(format!("lowest {} ms beside it", beside.as_millis()))
}

/// Checks for this time that a reader keeps its hold, and that writers are kept out. Returns the least remaining lease of the lock.
async fn reads_on(
    stage: &Stage,
    reader: &Sides,
    writers: &mut [Party],
    time: Duration,
) -> Outcome<Duration> {
    let until = Stamp::now() + time;
    let mut lowest = LONG;
    while Stamp::now() < until {
        sleep(Duration::from_millis(100)).await;
        lowest = lowest.min(stage.world.left(WATCHED)?);
        ensure!(reader.read.is_held(WATCHED).await?, "its hold was cut");
        for writer in &mut *writers {
            writer.is_excluded(WATCHED).await?;
        }
    }
    Ok(lowest)
}

/// The hold of a killed reader ends alone, when its own lease expires: not sooner, and not later because other readers go on.
pub(in super::super) async fn dead_reader(stage: &mut Stage) -> Outcome<String> {
    let mut remarks = Vec::new();
    for java_writes in [false, true] {
        let who = if java_writes { "Java" } else { "we" };
        let alone = inherits(stage, java_writes).await;
        let alone = alone.map_err(|failure| failure.during(format_args!("alone, {who} write")))?;
        let beside = outlives(stage, java_writes).await;
        let beside = beside
            .map_err(|failure| failure.during(format_args!("beside another, {who} write")))?;
        remarks.push(format!(
            "{who} write {} ms after the death, {} ms after the other reader",
            alone.as_millis(),
            beside.as_millis()
        ));
    }
    Ok(remarks.join("; "))
}

/// Checks that a writer acquires the lock when the killed reader's lease expires. Returns how long after the death.
async fn inherits(stage: &Stage, java_writes: bool) -> Outcome<Duration> {
    let world = &stage.world;
    let mortal = HolderProcess::lock(stage, reading(stage), Death::Kill, NAME).await?;
    let mut writer = writer(stage, java_writes).await?;
    let kill = async {
        world.asleep_on(&rw_channel(NAME)).await?;
        let promised = Stamp::now() + world.left(NAME)?;
        Ok((mortal.die(NAME).await?, promised))
    };
    let (waited, (died, promised)) = tokio::try_join!(writer.lock(NAME, Term::Kept), kill)?;
    ensure!(
        waited.to + ROUNDING >= promised,
        "free {:?} before the lease was over",
        promised.since(waited.to)
    );
    let after = waited.to.since(died);
    writer.unlock(NAME).await?.done()?;
    writer.close().await?;
    Ok(after)
}

/// A reader of the other side goes on past the end of the killed reader's lease, and then leaves: the writer is let in. Returns how long
/// after.
async fn outlives(stage: &Stage, java_writes: bool) -> Outcome<Duration> {
    let (lease, world) = (stage.terms.watchdog, &*stage.world);
    let (_, mut survivor) = both(stage);
    let mortal = HolderProcess::lock(stage, reading(stage), Death::Kill, NAME).await?;
    survivor.read.lock(NAME, Term::Kept).await?;
    let mut writer = writer(stage, java_writes).await?;
    let stay = async {
        world.asleep_on(&rw_channel(NAME)).await?;
        mortal.die(NAME).await?;
        sleep(lease * 5 / 4).await;
        survivor.read.unlock(NAME).await?.done()
    };
    let (waited, freed) = tokio::try_join!(writer.lock(NAME, Term::Kept), stay)?;
    ensure!(waited.to > freed.from, "it wrote while somebody read");
    let after = super::after(waited, freed);
    writer.unlock(NAME).await?.done()?;
    writer.close().await?;
    Ok(after)
}

/// A lock that the other side releases by force is lost to a reader or a writer: our client is notified, Java's learns it when it unlocks,
/// but not 3.13.6.
pub(in super::super) async fn forced(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, mut other) = both(stage);
    let name = "rw-force";
    for kind in [Kind::Read, Kind::Write] {
        let holder = holder.side(kind);
        holder.lock(name, Term::Kept).await?;
        ensure!(other.side(kind).force_unlock(name).await?, "not forced");
        if let Party::Ours(task) = holder {
            let lost = task.lost(name).await?;
            ensure!(lost.is_some() && !task.is_held(name), "lost, and yet held");
        }
        let unlocked = holder.unlock(name).await?;
        match holder {
            Party::Java(thread) if is_old(thread) => drop(unlocked.done()?),
            Party::Java(_) | Party::Ours(_) => drop(unlocked.refused()?),
        }
        other.write.finds_lock_free(name).await?;
        other.read.finds_lock_free(name).await?;
    }
    Ok(String::new())
}

const fn reading(stage: &Stage) -> Settings {
    Settings {
        kind: Kind::Read,
        ..stage.terms
    }
}

async fn writer(stage: &Stage, java: bool) -> Outcome<Party> {
    let world: &World = &stage.world;
    if java {
        let jvm = world.peer(&stage.build).await?;
        Party::java(world, &jvm, stage.terms).await
    } else {
        Party::ours(world, stage.terms).await
    }
}

fn is_old(thread: &JavaThread) -> bool {
    thread.peer().build().version.starts_with("3.")
}

const NAME: &str = "rw-death";
const WATCHED: &str = "rw-watchdog";
