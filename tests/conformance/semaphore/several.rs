//! Waiters for several permits at once: they get all or none, and have a place in the queue.

use tokio::time::{Instant, sleep};

use super::{counts, release, somebody_is_in_line, two};
use crate::stage::{ASLEEP, CaseResult, Semaphore, Stage, begun, in_time, soon, waits};

on_every_engine_with_scripts! { play with Semaphore:
    several_permits_are_granted_all_or_none,
    a_waiter_for_several_permits_is_not_starved_by_waiters_for_one,
    a_waiter_for_several_permits_that_leaves_lets_the_others_in,
    waiters_for_several_permits_enter_as_enough_are_released,
    a_request_above_the_total_blocks_no_other_client,
}

async fn several_permits_are_granted_all_or_none(stage: &Stage<Semaphore>) -> CaseResult {
    let (a, b) = two(stage, 5).await?;
    let three = a.permits(3).acquire().await?;
    assert_eq!(three.permit_ids().len(), 3);
    assert!(b.permits(3).try_acquire().await?.is_none());
    counts(&b, 2, 3).await?;
    let two = b.permits(2).try_acquire().await?.expect("two are there");
    let mut ids = [three.permit_ids(), two.permit_ids()].concat();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "each is another");
    three.release().await?;
    counts(&b, 3, 2).await?;
    two.release().await?;
    counts(&a, 5, 0).await
}

async fn a_waiter_for_several_permits_is_not_starved_by_waiters_for_one(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, b) = two(stage, 2).await?;
    let (one, other) = (a.permit().acquire().await?, b.permit().acquire().await?);
    let big = tokio::spawn(b.permits(2).acquire());
    somebody_is_in_line(stage).await?;
    one.release().await?;
    // One permit would be available, but a waiter is queued before it.
    for semaphore in [&a, &b] {
        assert!(semaphore.permit().try_acquire().await?.is_none());
    }
    let small = tokio::spawn(a.permit().acquire());
    sleep(ASLEEP).await;
    assert!(!big.is_finished() && !small.is_finished());
    other.release().await?;
    let big = in_time(big).await.expect("no panic")?;
    assert!(!small.is_finished(), "both are out");
    big.release().await?;
    in_time(small).await.expect("no panic")?.release().await
}

async fn a_waiter_for_several_permits_that_leaves_lets_the_others_in(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, b) = two(stage, 2).await?;
    let held = a.permit().acquire().await?;
    // The waiter acquires them at once, not with its next poll.
    soon(stage, async || {
        let big = tokio::spawn(b.permits(2).acquire());
        somebody_is_in_line(stage).await?;
        let asked = Instant::now();
        let mut small = begun(a.permit().acquire()).await;
        assert!(waits(&mut small).await);
        big.abort();
        in_time(small).await?.release().await?;
        Ok(asked.elapsed())
    })
    .await?;
    // A waiter that times out leaves the queue as well.
    stage
        .in_vain(async || b.permits(2).acquire_timeout(ASLEEP).await)
        .await?;
    in_time(a.permit().acquire()).await?.release().await?;
    held.release().await?;
    counts(&a, 2, 0).await
}

async fn waiters_for_several_permits_enter_as_enough_are_released(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, b) = two(stage, 4).await?;
    let all = a.permits(4).acquire().await?;
    let first = tokio::spawn(b.permits(2).acquire());
    let second = tokio::spawn(a.permits(2).acquire());
    sleep(ASLEEP).await;
    all.release().await?;
    let first = in_time(first).await.expect("no panic")?;
    let second = in_time(second).await.expect("no panic")?;
    counts(&a, 0, 4).await?;
    release(vec![first, second]).await
}

async fn a_request_above_the_total_blocks_no_other_client(stage: &Stage<Semaphore>) -> CaseResult {
    let (a, b) = two(stage, 2).await?;
    let held = a.permit().acquire().await?;
    let too_many = tokio::spawn(b.permits(3).acquire());
    sleep(ASLEEP).await;
    let one = a.permit().try_acquire().await?.expect("one is there");
    release(vec![held, one]).await?;
    // The waiter acquires them as soon as there are that many.
    a.set_total(3).await?;
    let all = in_time(too_many).await.expect("no panic")?;
    // The waiter has to let others in when the total is lowered again.
    let waiting = tokio::spawn(b.permits(3).acquire());
    sleep(ASLEEP).await;
    a.set_total(2).await?;
    all.release().await?;
    in_time(a.permit().acquire()).await?.release().await?;
    waiting.abort();
    counts(&a, 2, 0).await
}
