//! Waiters for permits that are not available yet.

use std::time::Duration;

use distlock::Error;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::stage::{ASLEEP, CaseResult, Plain, Stage, begun, in_time, soon, waits};

on_every_engine_with_scripts! { play with Plain:
    a_waiter_is_notified_of_released_permits,
    a_waiter_for_several_permits_is_notified_when_enough_are_available,
    a_waiter_for_several_permits_is_not_starved_by_waiters_for_one,
    as_many_waiters_as_permits_continue_at_once,
    a_timed_out_wait_for_permits_leaves_the_queue,
    a_dropped_wait_for_permits_wakes_the_next_waiter,
}

async fn a_waiter_is_notified_of_released_permits(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    a.counting_semaphore(&*name).try_set(0).await?;
    soon(stage, async || {
        let slots = b.counting_semaphore(&*name);
        let waiting = tokio::spawn(begun(async move { slots.acquire(1).await }).await);
        tokio::time::sleep(ASLEEP).await;
        let given = Instant::now();
        a.counting_semaphore(&*name).release(1).await?;
        in_time(waiting).await.expect("it does not panic")?;
        Ok(given.elapsed())
    })
    .await
}

async fn a_waiter_for_several_permits_is_notified_when_enough_are_available(
    stage: &Stage<Plain>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    a.counting_semaphore(&*name).try_set(0).await?;
    soon(stage, async || {
        let slots = b.counting_semaphore(&*name);
        let mut waiting = begun(async move { slots.acquire(3).await }).await;
        for _ in 0..2 {
            a.counting_semaphore(&*name).release(1).await?;
            assert!(waits(&mut waiting).await, "there are too few");
        }
        let given = Instant::now();
        a.counting_semaphore(&*name).release(1).await?;
        in_time(waiting).await?;
        assert_eq!(a.counting_semaphore(&*name).available().await?, 0);
        Ok(given.elapsed())
    })
    .await
}

async fn a_waiter_for_several_permits_is_not_starved_by_waiters_for_one(
    stage: &Stage<Plain>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    let slots = a.counting_semaphore(&*name);
    slots.try_set(2).await?;
    slots.acquire(2).await?;
    let big = b.counting_semaphore(&*name);
    let mut big = begun(async move { big.acquire(2).await }).await;
    assert!(waits(&mut big).await);
    // Release one permit: a request for one would succeed, until the waiter for two is queued before it.
    let stands = async {
        loop {
            slots.release(1).await?;
            if !slots.try_acquire(1).await? {
                return Ok::<_, Error>(());
            }
            assert!(waits(&mut big).await);
        }
    };
    in_time(stands).await?;
    let small = a.counting_semaphore(&*name);
    let mut small = begun(async move { small.acquire(1).await }).await;
    assert!(waits(&mut small).await);
    assert!(waits(&mut big).await);
    slots.release(1).await?;
    in_time(big).await?;
    assert!(waits(&mut small).await);
    slots.release(1).await?;
    in_time(small).await?;
    Ok(())
}

async fn as_many_waiters_as_permits_continue_at_once(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    a.counting_semaphore(&*name).try_set(0).await?;
    soon(stage, async || {
        let mut running = JoinSet::new();
        for client in [&a, &b] {
            for _ in 0..5 {
                let slots = client.counting_semaphore(&*name);
                running.spawn(begun(async move { slots.acquire(1).await }).await);
            }
        }
        tokio::time::sleep(ASLEEP).await;
        let given = Instant::now();
        // One message notifies all of them.
        a.counting_semaphore(&*name).release(10).await?;
        for had in in_time(running.join_all()).await {
            had?;
        }
        let took = given.elapsed();
        assert_eq!(a.counting_semaphore(&*name).available().await?, 0);
        Ok(took)
    })
    .await
}

async fn a_timed_out_wait_for_permits_leaves_the_queue(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    a.counting_semaphore(&*name).try_set(2).await?;
    let wait = Duration::from_millis(1500);
    let big = b.counting_semaphore(&*name);
    stage
        .in_vain(async || {
            let begun = Instant::now();
            let got = big.acquire_timeout(3, wait).await;
            let waited = begun.elapsed();
            assert!(waited >= wait, "{waited:?}");
            assert!(waited < wait + stage.slack(), "{waited:?}");
            got.map(|got| got.then_some(()))
        })
        .await?;
    assert!(!big.acquire_timeout(3, Duration::ZERO).await?);
    // The waiter has left the queue and blocks no other.
    in_time(a.counting_semaphore(&*name).acquire(1)).await?;
    in_time(a.counting_semaphore(&*name).acquire(1)).await
}

async fn a_dropped_wait_for_permits_wakes_the_next_waiter(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    a.counting_semaphore(&*name).try_set(1).await?;
    for (first, second) in [(&a, &b), (&a, &a), (&b, &a)] {
        let (big, small) = (
            first.counting_semaphore(&*name),
            second.counting_semaphore(&*name),
        );
        let mut waiting = begun(big.acquire(5)).await;
        assert!(waits(&mut waiting).await);
        let mut next = begun(small.acquire(1)).await;
        let mut tries = 0;
        while !waits(&mut next).await {
            // On a busy machine the other waiter is not queued yet.
            tries += 1;
            assert!(tries < stage.tries(), "somebody is first");
            small.release(1).await?;
            next = begun(small.acquire(1)).await;
        }
        drop(waiting);
        in_time(next).await?;
        small.release(1).await?;
        assert_eq!(small.available().await?, 1);
    }
    Ok(())
}
