//! Waiting for a lock, and leaving the queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Backoff, Lease, Wait};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::stage::{CaseResult, Family, PATIENCE, Stage, begun, in_time, soon, waits};
use crate::support::eventually;

with_every_lock! {
    a_waiter_gets_the_lock_as_soon_as_it_is_released,
    waiters_of_one_client_are_granted_the_lock_in_arrival_order,
    a_try_does_not_wait_for_a_busy_lock,
    a_timed_out_wait_returns_none,
    a_wait_ends_with_the_lock_when_it_is_released_in_time,
    a_wait_of_zero_sends_one_request,
    a_wait_may_be_longer_than_any_clock,
    a_poller_may_have_any_pause,
    waiters_for_different_leases_keep_their_order,
    a_waiter_that_leaves_wakes_the_next_one,
    a_timed_out_wait_wakes_the_next_waiter,
    a_lock_granted_to_an_unpolled_waiter_goes_to_the_next,
    a_poller_gets_the_lock_without_a_subscription,
    waiters_that_leave_leave_nothing_behind,
}

over_tls! {
    a_waiter_gets_the_lock_as_soon_as_it_is_released,
    waiters_that_leave_leave_nothing_behind,
}

/// Long enough for the store's reply that the lock is held.
const A_WAIT: Duration = Duration::from_millis(1500);

async fn a_waiter_gets_the_lock_as_soon_as_it_is_released(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for holder in [&a, &b] {
        soon(stage, async || {
            let held = holder.lock(&*name).acquire().await?;
            let mut waiting = begun(b.lock(&*name).acquire()).await;
            assert!(waits(&mut waiting).await);
            let released = Instant::now();
            held.release().await?;
            let next = in_time(waiting).await?;
            let waited = released.elapsed();
            next.release().await?;
            Ok(waited)
        })
        .await?;
    }
    Ok(())
}

async fn waiters_of_one_client_are_granted_the_lock_in_arrival_order(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let other = stage.client().await?;
    let name = stage.name("stock");
    // These limits hand the lock off in memory every time, at most twice in a row, and never.
    for limit in [32, 2, 0] {
        let client = stage.connect(stage.builder().handoff_limit(limit)).await?;
        for holder in [&client, &other] {
            let held = holder.lock(&*name).acquire().await?;
            let turns = Arc::new(Mutex::new(Vec::new()));
            let mut waiters = JoinSet::new();
            for n in 0..6 {
                let (acquiring, turns) = (client.lock(&*name).acquire(), turns.clone());
                let waiter = async move {
                    let held = acquiring.await?;
                    turns.lock().expect("nobody panics").push(n);
                    held.release().await
                };
                waiters.spawn(begun(waiter).await);
            }
            held.release().await?;
            while let Some(ended) = waiters.join_next().await {
                ended.expect("no waiter panics")?;
            }
            assert_eq!(*turns.lock().expect("nobody panics"), [0, 1, 2, 3, 4, 5]);
        }
    }
    Ok(())
}

async fn a_try_does_not_wait_for_a_busy_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let _in_line = (
        begun(a.lock(&*name).acquire()).await,
        begun(b.lock(&*name).acquire()).await,
    );
    for client in [&a, &b] {
        assert!(in_time(client.lock(&*name).try_acquire()).await?.is_none());
    }
    held.release().await
}

async fn a_timed_out_wait_returns_none(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    for wait in [Duration::from_micros(1), A_WAIT] {
        for client in [&a, &b] {
            let given_up = async || {
                let begun = Instant::now();
                let got = client.lock(&*name).acquire_timeout(wait).await;
                let waited = begun.elapsed();
                assert!(waited >= wait, "it gave up early: {waited:?}");
                assert!(waited < wait + stage.slack(), "it gave up late: {waited:?}");
                got
            };
            if wait < A_WAIT {
                // So short a wait may end before the store's first reply.
                assert!(!matches!(given_up().await, Ok(Some(_))));
            } else {
                stage.in_vain(given_up).await?;
            }
        }
    }
    assert!(held.is_held());
    held.release().await
}

async fn a_wait_ends_with_the_lock_when_it_is_released_in_time(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for holder in [&a, &b] {
        let held = holder.lock(&*name).acquire().await?;
        let mut waiting = begun(b.lock(&*name).acquire_timeout(PATIENCE)).await;
        assert!(waits(&mut waiting).await);
        held.release().await?;
        let got = waiting.await?.expect("it was released in time");
        got.release().await?;
    }
    Ok(())
}

/// A wait of no time behaves as `tryLock(0)` in Java, and the same on every engine.
async fn a_wait_of_zero_sends_one_request(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let got = a.lock(&*name).acquire_timeout(Duration::ZERO).await?;
    let held = got.expect("it is free");
    for client in [&a, &b] {
        let got = client.lock(&*name).acquire_timeout(Duration::ZERO).await?;
        assert!(got.is_none(), "it is taken");
    }
    held.release().await
}

async fn a_wait_may_be_longer_than_any_clock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for wait in [Duration::MAX, Duration::from_secs(100 * 366 * 86_400)] {
        let got = a.lock(&*name).acquire_timeout(wait).await?;
        let held = got.expect("it is free");
        let mut waiting = begun(b.lock(&*name).acquire_timeout(wait)).await;
        assert!(waits(&mut waiting).await);
        held.release().await?;
        let got = in_time(waiting).await?;
        got.expect("time is not over").release().await?;
    }
    Ok(())
}

async fn a_poller_gets_the_lock_without_a_subscription(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let poll = Wait::Poll(Backoff::new(
        Duration::from_millis(5),
        Duration::from_millis(20),
    ));

    let held = a.lock(&*name).acquire().await?;
    let mut polling = begun(b.lock(&*name).with_wait(poll).acquire()).await;
    assert!(waits(&mut polling).await);
    assert!(matches!(stage.listeners(&name), Some(0) | None));
    held.release().await?;
    let held = in_time(polling).await?;

    // The counterpart: a waiter that subscribes is counted.
    let mut listening = begun(a.lock(&*name).acquire()).await;
    eventually(PATIENCE, "the listener is counted", async || {
        waits(&mut listening).await && matches!(stage.listeners(&name), Some(1) | None)
    })
    .await;
    held.release().await?;
    in_time(listening).await?.release().await
}

/// The pauses are cut short by the end of the holder's lease, more than once.
async fn a_poller_may_have_any_pause(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lease = Duration::from_millis(2500);
    for pause in [Duration::MAX, Duration::ZERO] {
        let patient = Wait::Poll(Backoff::new(pause, pause));
        let fixed = a.lock(&*name).with_lease(Lease::Fixed(lease));
        let held = fixed.acquire().await?;
        let polling = begun(b.lock(&*name).with_wait(patient).acquire()).await;
        held.extend(lease * 2).await?;
        in_time(polling).await?.release().await?;
        assert!(!held.is_held());
    }
    Ok(())
}

async fn waiters_for_different_leases_keep_their_order(stage: &Stage<impl Family>) -> CaseResult {
    let (client, other) = stage.clients().await?;
    let name = stage.name("stock");
    let leases = [
        Lease::Fixed(PATIENCE),
        Lease::KeepAlive(PATIENCE),
        Lease::default(),
        Lease::default(),
        Lease::Fixed(PATIENCE),
    ];
    for holder in [&client, &other] {
        let held = holder.lock(&*name).acquire().await?;
        let turns = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = JoinSet::new();
        for lease in leases {
            let acquiring = client.lock(&*name).with_lease(lease).acquire();
            let turns = turns.clone();
            let waiter = async move {
                let held = acquiring.await?;
                turns.lock().expect("nobody panics").push(lease);
                held.release().await
            };
            waiters.spawn(begun(waiter).await);
        }
        held.release().await?;
        while let Some(ended) = waiters.join_next().await {
            ended.expect("no waiter panics")?;
        }
        assert_eq!(*turns.lock().expect("nobody panics"), leases);
    }
    Ok(())
}

async fn a_waiter_that_leaves_wakes_the_next_one(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for holder in [&a, &b] {
        let held = holder.lock(&*name).acquire().await?;
        let mut line = Vec::new();
        for _ in 0..5 {
            line.push(begun(a.lock(&*name).acquire()).await);
        }
        // Drop one from the middle, then the first, then the first of the rest, which have moved up.
        drop(line.remove(2));
        drop(line.remove(0));
        assert!(waits(&mut line[0]).await);
        drop(line.remove(0));
        held.release().await?;
        let next = in_time(line.remove(0)).await?;
        assert!(waits(&mut line[0]).await);
        drop(next);
        in_time(line.remove(0)).await?.release().await?;
    }
    Ok(())
}

async fn a_timed_out_wait_wakes_the_next_waiter(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for holder in [&a, &b] {
        stage
            .in_vain(async || {
                let held = holder.lock(&*name).acquire().await.expect("it is free");
                let hasty = begun(a.lock(&*name).acquire_timeout(A_WAIT)).await;
                let patient = begun(a.lock(&*name).acquire()).await;
                let (hasty, released, patient) = tokio::join!(
                    hasty,
                    async {
                        tokio::time::sleep(A_WAIT * 3 / 2).await;
                        held.release().await
                    },
                    in_time(patient),
                );
                released.expect("it is ours");
                let patient = patient.expect("it is free");
                patient.release().await.expect("it is ours");
                hasty
            })
            .await?;
    }
    Ok(())
}

/// The lock is passed to a waiter that is dropped before it is polled again.
async fn a_lock_granted_to_an_unpolled_waiter_goes_to_the_next(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");

    let held = a.lock(&*name).acquire().await?;
    let unaware = begun(a.lock(&*name).acquire()).await;
    let next = begun(a.lock(&*name).acquire()).await;
    held.release().await?;
    drop(unaware);
    let held = in_time(next).await?;

    let unaware = begun(a.lock(&*name).acquire()).await;
    held.release().await?;
    drop(unaware);
    let got = b.lock(&*name).acquire_timeout(PATIENCE).await?;
    got.expect("nobody has it").release().await
}

async fn waiters_that_leave_leave_nothing_behind<F: Family>(stage: &Stage<F>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(begun(b.lock(&*name).acquire()).await);
    }
    let each = if F::IN_ORDER { 3 } else { 1 };
    eventually(PATIENCE, "they listen", async || {
        for waiting in &mut waiting {
            assert!(waits(waiting).await);
        }
        stage.listeners(&name).is_none_or(|count| count == each)
    })
    .await;
    drop(waiting);
    eventually(PATIENCE, "nobody listens", async || {
        matches!(stage.listeners(&name), Some(0) | None)
    })
    .await;
    held.release().await?;
    assert!(a.admin().inspect(&name).await?.is_none());
    // If the store keeps the queue, the dropped waiters leave it in the background.
    let held = a.lock(&*name).acquire_timeout(PATIENCE).await?;
    held.expect("nobody has it").release().await
}
