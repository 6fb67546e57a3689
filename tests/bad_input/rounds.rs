//! Scenarios with every operation of a lock, for each kind: a user without one of the rights gets stuck in one of them.

#![expect(
    clippy::future_not_send,
    reason = "the cases run side by side on one thread"
)]

use std::time::Duration;

use tokio::time::Instant;

use distlock::{Client, Error, Lease, Lock};

use super::stage::{Broken, Stage, limit};
use super::{IN_VAIN, PATIENCE};

type Round = Result<(), Broken>;

/// Runs a plain, simple, fenced or fair lock: held twice, waited for, renewed, inspected, released, removed, undone.
pub(crate) async fn lock<K: 'static>(
    stage: &Stage<'_>,
    needed: impl Fn(&Client, &str) -> Lock<K>,
) -> Round {
    let Stage { client, other, .. } = stage;
    let lock = || needed(client, &stage.name);
    // Renewed every two seconds; the rest is a margin for a busy machine.
    let lease = Lease::KeepAlive(Duration::from_secs(6));
    let mine = lock().with_owner(&client.new_owner()).with_lease(lease);
    let (outer, inner) = (mine.acquire().await?, mine.acquire().await?);
    let waiting = tokio::spawn(needed(other, &stage.name).acquire());
    let channels = || stage.server.pubsub_channels().len();
    let waits = "it waits, or is told";
    stage
        .until(waits, || waiting.is_finished() || channels() > 0)
        .await?;
    if waiting.is_finished() {
        drop(waiting.await.expect("no panic")?);
        return Err(Broken::Seen("it did not wait"));
    }
    let renewals = stage.server.commandstats("pexpire");
    let renewed = || stage.server.commandstats("pexpire") > renewals + 1;
    stage.until("it is renewed", renewed).await?;
    outer.check()?;
    let seen = client.admin().inspect(&stage.name).await?;
    let seen = seen.ok_or(Broken::Seen("it is held"))?;
    assert_eq!(seen.holders[0].owner, outer.owner());
    inner.release().await?;
    outer.release().await?;
    let woken = tokio::time::timeout(PATIENCE, waiting).await;
    let next = woken.map_err(|_| Broken::Seen("it is woken"))?;
    let next = next.expect("no panic")?;
    assert!(client.admin().force_release(&stage.name).await?);
    drop(next);
    let nobody = || channels() == 0;
    stage.until("nobody listens any more", nobody).await?;
    undone(stage, needed).await?;
    client.close().await?;
    other.close().await?;
    Ok(())
}

/// Enters the lock again without receiving the reply: the entry is undone, whether the request is executed or not.
async fn undone<K: 'static>(stage: &Stage<'_>, needed: impl Fn(&Client, &str) -> Lock<K>) -> Round {
    let lock = needed(&stage.hasty, &stage.name).with_owner(&stage.hasty.new_owner());
    let lock = lock.with_lease(Lease::Fixed(PATIENCE));
    let begun = Instant::now();
    let held = loop {
        match lock.try_acquire().await {
            Ok(held) => break held.ok_or(Broken::Seen("it is free"))?,
            // This client gives up soon, and the machine is busy.
            Err(Error::Timeout { .. }) if begun.elapsed() < limit() => {}
            Err(error) => return Err(error.into()),
        }
    };
    let mark = stage.beside("distlock_undone");
    let marked = || stage.server.keys().contains(&mark);
    // The tombstone may be that of a try above.
    stage.server.cmd(&["DEL", &mark]);
    let begun = Instant::now();
    while !marked() {
        if begun.elapsed() > limit() {
            return Err(Broken::Seen("what was undone is known"));
        }
        stage.pause();
        drop(lock.try_acquire().await);
        // On a busy machine the request may be so late that its reply arrives in time: then the loop repeats it.
        let paused = Instant::now();
        while !marked() && paused.elapsed() < Duration::from_secs(3) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    drop(held);
    let free = || !stage.server.keys().contains(&stage.key());
    stage.until("it is free", free).await
}

/// Runs a fenced lock: tokens of a server whose clock was ahead, under a key that was given a time to live.
pub(crate) async fn tokens(stage: &Stage<'_>) -> Round {
    let (lock, counter) = (
        stage.client.fenced_lock(&*stage.name),
        stage.beside("redisson_lock_token"),
    );
    lock.acquire().await?.release().await?;
    stage
        .server
        .cmd(&["SET", &counter, "8000000000000000", "PX", "600000"]);
    let guard = lock.acquire().await?;
    assert_eq!(guard.token().number(), 8_000_000_000_000_001);
    guard.release().await?;
    let stays = || stage.server.pttl(&counter) == -1;
    stage.until("the counter has no end", stays).await
}

/// Sets the label of a holder and reads it.
pub(crate) async fn label(stage: &Stage<'_>) -> Round {
    let Stage {
        client,
        other,
        name,
        ..
    } = stage;
    client.set_label("billing");
    let held = client.lock(&**name).acquire().await?;
    let begun = Instant::now();
    loop {
        let seen = other.admin().inspect(name).await?;
        let seen = seen.ok_or(Broken::Seen("it is held"))?;
        if seen.holders[0].label.as_deref() == Some("billing") {
            break;
        }
        if begun.elapsed() > limit() {
            return Err(Broken::Seen("its label is seen"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    held.release().await?;
    client.close().await?;
    let gone = || stage.server.keys().is_empty();
    stage.until("its label is gone", gone).await
}

/// Runs latches and counting semaphores.
pub(crate) async fn counting(stage: &Stage<'_>) -> Round {
    let Stage {
        server,
        client,
        other,
        name,
        ..
    } = stage;
    let (latch, slots) = (
        client.latch(format!("{name}-loaded")),
        client.counting_semaphore(&**name),
    );
    assert!(latch.try_set(2).await?);
    assert_eq!(latch.count_down().await?, 1);
    let loaded = tokio::spawn(other.latch(format!("{name}-loaded")).wait());
    heard(stage, &loaded).await?;
    assert_eq!(latch.count_down().await?, 0);
    let loaded = tokio::time::timeout(PATIENCE, loaded).await;
    loaded
        .map_err(|_| Broken::Seen("it is told"))?
        .expect("no panic")?;
    assert!(!latch.delete().await?);

    assert!(slots.try_set(2).await?);
    slots.acquire(1).await?;
    // This waiter is queued behind a crashed one.
    server.cmd(&["RPUSH", &stage.beside("distlock_line"), "nobody"]);
    let alive = stage.beside("distlock_alive");
    server.cmd(&["ZADD", &alive, "1", "nobody"]);
    // And beside one whose entry was lost, so that the queue is searched.
    server.cmd(&["ZADD", &alive, "9000000000000", "somebody"]);
    let in_vain = slots.acquire_timeout(2, IN_VAIN).await?;
    assert!(!in_vain, "there is one");
    drop(tokio::time::timeout(IN_VAIN, slots.acquire(2)).await);
    let line = stage.beside("distlock_line");
    let left = || server.query::<u64>(&["LLEN", &line]) == 0;
    stage.until("who gives up leaves the line", left).await?;
    let waiting = tokio::spawn(other.counting_semaphore(&**name).acquire(2));
    heard(stage, &waiting).await?;
    slots.release(1).await?;
    let waiting = tokio::time::timeout(PATIENCE, waiting).await;
    waiting
        .map_err(|_| Broken::Seen("it has its turn"))?
        .expect("no panic")?;
    slots.add(-1).await?;
    slots.set_available(4).await?;
    let slots = other.counting_semaphore(&**name);
    slots.drain().await?;
    assert!(slots.delete().await?);
    Ok(())
}

/// Waits until there is a subscriber; a waiter that is refused finishes before it subscribes.
async fn heard(stage: &Stage<'_>, waiting: &tokio::task::JoinHandle<Result<(), Error>>) -> Round {
    let listens = || waiting.is_finished() || !stage.server.pubsub_channels().is_empty();
    stage.until("it listens", listens).await
}
