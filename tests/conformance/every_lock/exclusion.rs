//! Mutual exclusion: one holder at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::{JoinSet, yield_now};

use crate::stage::{CaseResult, Family, PATIENCE, Stage, begun, in_time, waits};

with_every_lock! {
    a_client_excludes_another,
    a_client_excludes_itself,
    a_lock_can_be_acquired_again_and_again,
    a_lock_does_not_exclude_holders_of_another,
    the_same_task_without_an_owner_is_excluded_too,
    no_two_guards_are_valid_at_once,
    a_dropped_guard_releases_the_lock,
    a_future_needs_neither_its_lock_nor_its_client,
}

over_tls! {
    a_client_excludes_another,
    a_dropped_guard_releases_the_lock,
}

async fn a_client_excludes_another(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");

    let held = a.lock(&*name).acquire().await?;
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    held.release().await?;

    let held = b.lock(&*name).try_acquire().await?;
    let held = held.expect("it is free");
    assert!(a.lock(&*name).try_acquire().await?.is_none());
    held.release().await
}

async fn a_client_excludes_itself(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));

    let held = lock.try_acquire().await?.expect("it is free");
    // The same value, a clone of it and a new value of the same name are one lock.
    let again = client.lock(lock.name());
    for same in [&lock, &lock.clone(), &again] {
        assert!(same.try_acquire().await?.is_none());
    }
    held.release().await?;
    let held = lock.try_acquire().await?;
    held.expect("it is free again").release().await
}

async fn a_lock_can_be_acquired_again_and_again(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for _ in 0..20 {
        a.lock(&*name).acquire().await?.release().await?;
        let held = b.lock(&*name).try_acquire().await?;
        held.expect("what is given back is free at once")
            .release()
            .await?;
    }
    Ok(())
}

async fn a_lock_does_not_exclude_holders_of_another(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let one = a.lock(stage.name("one")).acquire().await?;
    let two = b.lock(stage.name("two")).try_acquire().await?;
    let three = a.lock(stage.name("three")).try_acquire().await?;
    assert!(one.is_held() && two.is_some() && three.is_some());
    Ok(())
}

/// Both branches of a `join!` are one task: they must not both hold the lock.
async fn the_same_task_without_an_owner_is_excluded_too(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));

    let held = lock.acquire().await?;
    assert!(lock.try_acquire().await?.is_none());
    let mut second = begun(lock.acquire()).await;
    assert!(waits(&mut second).await);
    held.release().await?;
    in_time(second).await?.release().await?;

    let inside = AtomicUsize::new(0);
    let branch = async || {
        let held = lock.acquire().await?;
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody is in");
        yield_now().await;
        inside.fetch_sub(1, Ordering::SeqCst);
        held.release().await
    };
    let (left, right) = tokio::join!(branch(), branch());
    left.and(right)
}

async fn no_two_guards_are_valid_at_once(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::<CaseResult>::new();
    for n in 0..10 {
        let client = if n % 2 == 0 { &a } else { &b };
        let (lock, inside) = (client.lock(&*name), inside.clone());
        tasks.spawn(async move {
            for round in 0..6 {
                let held = lock.acquire().await?;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody is in");
                yield_now().await;
                assert!(held.is_held());
                inside.fetch_sub(1, Ordering::SeqCst);
                if round % 2 == 0 {
                    held.release().await?;
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task panics")?;
    }
    Ok(())
}

async fn a_dropped_guard_releases_the_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");

    let held = a.lock(&*name).acquire().await?;
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    drop(held);
    let held = b.lock(&*name).acquire_timeout(PATIENCE).await?;
    assert!(held.is_some());

    // The drop also releases it if a waiter is queued.
    let waiting = begun(a.lock(&*name).acquire()).await;
    drop(held);
    in_time(waiting).await?.release().await
}

async fn a_future_needs_neither_its_lock_nor_its_client(stage: &Stage<impl Family>) -> CaseResult {
    let one = stage.client().await?.lock(stage.name("one")).acquire();
    let (one, two) = tokio::join!(one, stage.client().await?.lock(stage.name("two")).acquire());
    let (one, two) = (one?, two?);
    assert!(one.is_held() && two.is_held());
    let releasing = tokio::spawn(one.release());
    releasing.await.expect("it can be spawned")?;
    two.release().await
}
