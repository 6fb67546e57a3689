//! Waiters that are killed while they are queued.

use std::process::Stdio;

use tokio::process::Command;

use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::{Party, Term};
use crate::scenarios::{LONG, ROUNDING};
use crate::stage::{Stage, java_thread};

/// The killed waiter is the head of the queue when the lock is released. No client can know that it is dead, so all waiters behind it wait
/// for as long as Redisson's timeout says: five minutes, unless it is configured otherwise.
pub(crate) async fn dead_java(stage: &mut Stage) -> Outcome<String> {
    let name = "fair-dead-java";
    let terms = stage.terms;
    let world = stage.world.clone();
    stage.holder.lock(name, Term::Kept).await?;
    let jvm = world.fresh_peer(&stage.build).await?;
    let dying = java_thread(&world, &jvm, terms).await?;
    let (owner, told) = (dying.owner().to_owned(), dying.has_fair_wait());
    let waiting = tokio::spawn(async move {
        match told {
            true => dying.lock(name, Term::Kept).await.map(drop),
            // An older version uses its wait limit as that timeout.
            false => dying
                .try_lock(name, terms.fair_wait, Term::Kept)
                .await
                .map(drop),
        }
    });
    world.until_queued(name, 1).await?;
    jvm.kill_hard().await?;
    ensure!(waiting.await?.is_err(), "it was killed and has its turn");
    let read = Stamp::now();
    let patience = world.patience_with(name, &owner)?;
    let longest = terms.fair_wait + terms.watchdog;
    ensure!(
        patience <= longest,
        "its time is {patience:?}, more than {longest:?}"
    );
    let over = read + patience;

    let mut ours = Party::ours(&world, terms).await?;
    let unlock = async {
        world.until_queued(name, 2).await?;
        stage.holder.unlock(name).await?.done()
    };
    let (waited, _) = tokio::try_join!(ours.lock(name, Term::Kept), unlock)?;
    ensure!(
        waited.to + ROUNDING >= over,
        "passed over {:?} before its time was over",
        over.since(waited.to)
    );
    let late = waited.to.since(over);
    ours.unlock(name).await?.done()?;
    ours.close().await?;
    let by = if told {
        "fairLockWaitTimeout"
    } else {
        "tryLock"
    };
    let (patience, late) = (patience.as_millis(), late.as_millis());
    Ok(format!("{patience} ms by {by}, {late} ms late"))
}

/// The killed waiter is the head of the queue when the lock is released, a thread of Java's is behind it, and a waiter of ours behind that.
pub(crate) async fn dead_ours(stage: &mut Stage) -> Outcome<String> {
    let name = "fair-dead-ours";
    let terms = stage.terms;
    let world = stage.world.clone();
    // The lease is so long that Java would not wake by itself in time.
    stage.holder.lock(name, Term::Fixed(LONG)).await?;
    let mut dying = Command::new(std::env::current_exe()?)
        .args(["hold", &world.server().url(), "fair", name, "30000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    world.until_queued(name, 1).await?;
    let jvm = world.peer(&stage.build).await?;
    let mut java = Party::java(&world, &jvm, terms).await?;
    let mut ours = Party::ours(&world, terms).await?;
    let java_waits = async {
        let waited = java.lock(name, Term::Kept).await?;
        java.unlock(name).await?.done()?;
        Ok(waited)
    };
    let ours_wait = async {
        world.until_queued(name, 2).await?;
        ours.lock(name, Term::Kept).await
    };
    let kill = async {
        world.until_queued(name, 3).await?;
        let killed = Stamp::now();
        dying.kill().await?;
        stage.holder.unlock(name).await?.done()?;
        Ok(killed)
    };
    let (first, second, killed) = tokio::try_join!(java_waits, ours_wait, kill)?;
    let after = first.to.since(killed);
    ensure!(
        second.to > first.to,
        "ours had it before Java, who came first"
    );
    ours.unlock(name).await?.done()?;
    java.close().await?;
    ours.close().await?;
    Ok(format!("{} ms after the kill", after.as_millis()))
}
