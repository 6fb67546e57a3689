//! The latch: its count, and the waiters that it releases.

use std::time::Duration;

use distlock::{Client, Error};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::stage::{CaseResult, PATIENCE, Plain, Stage, begun, in_time, soon, waits};

on_every_engine_with_scripts! { play with Plain:
    a_latch_opens_when_it_has_been_counted_down,
    an_unset_latch_is_open_and_stays_open,
    a_latch_is_set_once_and_again_when_it_is_open,
    one_message_wakes_all_waiters,
    a_wait_for_a_latch_times_out,
    a_deleted_latch_wakes_all_waiters,
    concurrent_count_downs_are_all_counted,
    a_latch_and_a_lock_of_one_name_are_distinguished,
    a_latch_rejects_invalid_arguments,
    a_closed_client_waits_for_no_latch,
}

async fn a_latch_opens_when_it_has_been_counted_down(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("loaded");
    let (ours, theirs) = (a.latch(&*name), b.latch(&*name));
    assert!(ours.try_set(2).await?);
    assert_eq!(theirs.count().await?, 2);
    let mut waiting = begun(theirs.wait()).await;
    assert_eq!(ours.count_down().await?, 1);
    assert!(waits(&mut waiting).await, "there is one to go");
    assert_eq!(theirs.count_down().await?, 0);
    in_time(waiting).await?;
    assert_eq!(ours.count().await?, 0);
    in_time(ours.wait()).await
}

async fn an_unset_latch_is_open_and_stays_open(stage: &Stage<Plain>) -> CaseResult {
    let client = stage.client().await?;
    let latch = client.latch(stage.name("loaded"));
    assert_eq!(latch.count().await?, 0);
    in_time(latch.wait()).await?;
    assert!(latch.wait_timeout(Duration::ZERO).await?);
    assert_eq!(latch.count_down().await?, 0);
    assert_eq!(latch.count_down().await?, 0);
    assert!(!latch.delete().await?);
    assert!(latch.try_set(1).await?, "nothing of that is left");
    assert_eq!(latch.count().await?, 1);
    Ok(())
}

async fn a_latch_is_set_once_and_again_when_it_is_open(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("loaded");
    assert!(a.latch(&*name).try_set(1).await?);
    assert!(!b.latch(&*name).try_set(7).await?);
    assert_eq!(b.latch(&*name).count_down().await?, 0);
    assert!(b.latch(&*name).try_set(7).await?);
    assert_eq!(a.latch(&*name).count().await?, 7);
    Ok(())
}

async fn one_message_wakes_all_waiters(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    soon(stage, async || {
        let latch = a.latch(stage.name("loaded"));
        assert!(latch.try_set(1).await?);
        let mut waiting = Vec::new();
        for client in [&a, &b] {
            for _ in 0..20 {
                let waits = client.latch(latch.name());
                waiting.push(begun(async move { waits.wait().await }).await);
            }
        }
        let mut running = JoinSet::new();
        for waits in waiting {
            running.spawn(waits);
        }
        // They are asleep by then: they have polled, subscribed and polled again.
        tokio::time::sleep(crate::stage::ASLEEP).await;
        let counted = Instant::now();
        assert_eq!(b.latch(latch.name()).count_down().await?, 0);
        let woken = in_time(running.join_all()).await;
        assert_eq!(woken.len(), 40);
        woken.into_iter().collect::<Result<Vec<()>, Error>>()?;
        Ok(counted.elapsed())
    })
    .await
}

async fn a_wait_for_a_latch_times_out(stage: &Stage<Plain>) -> CaseResult {
    let client = stage.client().await?;
    let latch = client.latch(stage.name("loaded"));
    latch.try_set(1).await?;
    for wait in [Duration::ZERO, Duration::from_millis(1500)] {
        stage
            .in_vain(async || {
                let begun = Instant::now();
                let open = latch.wait_timeout(wait).await;
                let waited = begun.elapsed();
                assert!(waited >= wait, "{waited:?}");
                assert!(waited < wait + stage.slack(), "{waited:?}");
                open.map(|open| open.then_some(()))
            })
            .await?;
    }
    let latest = Box::pin(latch.wait_timeout(PATIENCE));
    let (open, left) = tokio::join!(latest, latch.count_down());
    assert!(open?);
    assert_eq!(left?, 0);
    Ok(())
}

async fn a_deleted_latch_wakes_all_waiters(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    soon(stage, async || {
        let latch = a.latch(stage.name("loaded"));
        assert!(latch.try_set(3).await?);
        let (ours, theirs) = (a.latch(latch.name()), b.latch(latch.name()));
        let mut running = JoinSet::new();
        running.spawn(begun(async move { ours.wait().await }).await);
        running.spawn(begun(async move { theirs.wait().await }).await);
        tokio::time::sleep(crate::stage::ASLEEP).await;
        let deleted = Instant::now();
        assert!(latch.delete().await?);
        for woken in in_time(running.join_all()).await {
            woken?;
        }
        assert_eq!(latch.count().await?, 0);
        Ok(deleted.elapsed())
    })
    .await
}

async fn concurrent_count_downs_are_all_counted(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("loaded");
    assert!(a.latch(&*name).try_set(60).await?);
    let mut running = JoinSet::new();
    for client in [&a, &b] {
        for _ in 0..30 {
            let latch = client.latch(&*name);
            running.spawn(async move { latch.count_down().await });
        }
    }
    let left = in_time(running.join_all()).await;
    let mut left = left.into_iter().collect::<Result<Vec<u64>, Error>>()?;
    left.sort_unstable();
    assert_eq!(left, Vec::from_iter(0..60), "each counted once");
    assert_eq!(a.latch(&*name).count().await?, 0);
    Ok(())
}

async fn a_latch_and_a_lock_of_one_name_are_distinguished(stage: &Stage<Plain>) -> CaseResult {
    let client: Client = (*stage.client().await?).clone();
    let name = stage.name("both");
    let guard = client.lock(&*name).acquire().await?;
    let latch = client.latch(&*name);
    for error in [
        latch.try_set(1).await.map(drop).unwrap_err(),
        latch.count_down().await.map(drop).unwrap_err(),
        latch.count().await.map(drop).unwrap_err(),
        latch.wait().await.unwrap_err(),
        latch.delete().await.map(drop).unwrap_err(),
    ] {
        let told = matches!(&error, Error::WrongKind { name: of, .. } if **of == *name);
        assert!(told, "{error:?}");
    }
    guard.release().await?;
    assert!(latch.try_set(1).await?, "the lock has gone");
    let refused = client.lock(&*name).try_acquire().await;
    assert!(
        matches!(refused, Err(Error::WrongKind { .. })),
        "{refused:?}"
    );
    assert_eq!(latch.count().await?, 1);
    Ok(())
}

async fn a_latch_rejects_invalid_arguments(stage: &Stage<Plain>) -> CaseResult {
    let client = stage.client().await?;
    let latch = client.latch(stage.name("loaded"));
    for count in [0, 1 << 53, u64::MAX] {
        let refused = latch.try_set(count).await;
        assert!(
            matches!(refused, Err(Error::InvalidOption { .. })),
            "{refused:?}"
        );
    }
    assert!(latch.try_set((1 << 53) - 1).await?);
    assert_eq!(latch.count_down().await?, (1 << 53) - 2);
    let refused = client.latch("").count().await;
    assert!(
        matches!(refused, Err(Error::InvalidName { .. })),
        "{refused:?}"
    );
    Ok(())
}

async fn a_closed_client_waits_for_no_latch(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("loaded");
    a.latch(&*name).try_set(1).await?;
    let latch = b.latch(&*name);
    let waiting = begun(latch.wait()).await;
    b.close().await?;
    let ended = in_time(waiting).await;
    assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
    let refused = latch.count_down().await;
    assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
    assert_eq!(a.latch(&*name).count().await?, 1);
    Ok(())
}
