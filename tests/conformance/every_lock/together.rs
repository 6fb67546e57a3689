//! Concurrent calls of one owner, or of several.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Backoff, Wait};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::stage::{CaseResult, Family, PATIENCE, Stage, asked, begun, count_seen, in_time, waits};
use crate::support::eventually;

with_every_lock! {
    ;
    waiting_calls_of_one_owner_enter_together,
    a_call_admitted_too_late_by_its_owner_continues_to_wait,
    a_waiting_call_enters_though_another_call_of_its_owner_overtook_it,
    concurrent_calls_of_one_owner_enter_together,
    guards_released_at_the_same_time_are_not_taken_for_lost,
    an_owner_in_many_tasks_is_counted_exactly,
    owners_in_many_tasks_exclude_each_other,
}

over_tls! {
    owners_in_many_tasks_exclude_each_other,
}

async fn waiting_calls_of_one_owner_enter_together(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for holder in [&a, &b] {
        let lock = a.one_owners(&name);
        let held = holder.lock(&*name).acquire().await?;
        let first = begun(lock.acquire()).await;
        let mut stranger = begun(a.lock(&*name).acquire()).await;
        let second = begun(lock.acquire()).await;
        let third = begun(lock.acquire_timeout(PATIENCE)).await;
        assert!(waits(&mut stranger).await);
        held.release().await?;

        let first = in_time(first).await?;
        let second = in_time(second).await?;
        let third = in_time(third).await?.expect("its owner has it");
        assert_eq!(first.hold_count(), 3);
        assert_eq!(count_seen(&b, &name).await?, b.counted(3));
        assert!(waits(&mut stranger).await);
        for guard in [first, second, third] {
            guard.release().await?;
        }
        in_time(stranger).await?.release().await?;
    }
    Ok(())
}

/// The owner holds the lock when its second call is woken, and holds it no more when the call runs.
async fn a_call_admitted_too_late_by_its_owner_continues_to_wait(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let other = stage.client().await?;
    let name = stage.name("stock");
    for limit in [32, 0] {
        let client = stage.connect(stage.builder().handoff_limit(limit)).await?;
        for holder in [&client, &other] {
            let lock = client.one_owners(&name);
            let held = holder.lock(&*name).acquire().await?;
            let first = begun(lock.acquire()).await;
            let stranger = begun(client.lock(&*name).acquire()).await;
            let mut second = begun(lock.acquire()).await;
            held.release().await?;
            in_time(first).await?.release().await?;
            let stranger = in_time(stranger).await?;
            assert!(waits(&mut second).await);
            stranger.release().await?;
            in_time(second).await?.release().await?;
        }
    }
    Ok(())
}

/// The call at the head of the queue pauses between two requests when another call of its owner, a try, acquires the lock.
async fn a_waiting_call_enters_though_another_call_of_its_owner_overtook_it<F: Family>(
    stage: &Stage<F>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.one_owners(&name);
    // Long enough that the call sends no request while it is not polled: it would acquire the lock then.
    let pause = Duration::from_secs(4);
    let seldom = Wait::Poll(Backoff::new(pause, pause));

    for _ in 0..stage.tries() {
        let held = b.lock(&*name).acquire().await?;
        let mut waiting = begun(lock.clone().with_wait(seldom).acquire()).await;
        assert!(waits(&mut waiting).await);
        held.release().await?;
        let Some(first) = lock.try_acquire().await? else {
            in_time(waiting).await?.release().await?;
            if F::IN_ORDER {
                return Ok(());
            }
            // On a busy machine its first request came only now, and it has the lock.
            continue;
        };
        assert!(!F::IN_ORDER, "somebody waits");
        let entered = timeout(pause * 5, waiting).await;
        let entered = entered.expect("it waits for its own owner")?;
        assert_eq!(first.hold_count(), 2);
        entered.release().await?;
        return first.release().await;
    }
    panic!("it is free");
}

/// Both requests are under way before either is answered.
async fn concurrent_calls_of_one_owner_enter_together(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = client.one_owners(&name);
    let soon = Duration::from_secs(5);
    // Which reply is processed first is a matter of chance.
    for _ in 0..10 {
        let (one, two) = tokio::join!(lock.acquire(), timeout(soon, lock.acquire()));
        let two = two.expect("it waits for its own owner")?;
        assert_eq!(count_seen(&client, &name).await?, client.counted(2));
        one?.release().await?;
        two.release().await?;
        // If the store keeps the queue, one of the calls may still have to leave it.
        let free = client.lock(&*name).acquire_timeout(soon).await?;
        free.expect("nobody has it").release().await?;

        // The first of them only tries.
        let (one, two) = tokio::join!(lock.try_acquire(), timeout(soon, lock.acquire()));
        let two = two.expect("it waits for its own owner")?;
        let one = one?.expect("it is free");
        assert_eq!(count_seen(&client, &name).await?, client.counted(2));
        one.release().await?;
        two.release().await?;
    }
    Ok(())
}

/// The release of the last guard may overtake that of the one before it.
async fn guards_released_at_the_same_time_are_not_taken_for_lost(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.one_owners(&name);
    for _ in 0..100 {
        let mut releases = JoinSet::new();
        let guards = [
            lock.acquire().await?,
            lock.acquire().await?,
            lock.acquire().await?,
        ];
        for guard in guards {
            releases.spawn(guard.release());
        }
        while let Some(released) = releases.join_next().await {
            released.expect("no task panics")?;
        }
        assert_eq!(count_seen(&b, &name).await?, 0);
    }
    Ok(())
}

async fn an_owner_in_many_tasks_is_counted_exactly(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.one_owners(&name);
    let outer = lock.acquire().await?;
    let mut tasks = JoinSet::<CaseResult>::new();
    for n in 0..6 {
        let lock = lock.clone();
        tasks.spawn(async move {
            for round in n..n + 8 {
                let guard = lock.acquire().await?;
                guard.check()?;
                match round % 3 {
                    0 => guard.release().await?,
                    1 => drop(guard),
                    _ => drop(asked(guard.release()).await),
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task panics")?;
    }
    assert_eq!(outer.hold_count(), 1);
    eventually(PATIENCE, "the store counts one", async || {
        count_seen(&b, &name).await.is_ok_and(|count| count == 1)
    })
    .await;
    outer.release().await?;
    assert_eq!(count_seen(&b, &name).await?, 0);
    Ok(())
}

async fn owners_in_many_tasks_exclude_each_other(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let inside: [Arc<AtomicUsize>; 3] = Default::default();
    let mut tasks = JoinSet::<CaseResult>::new();
    // Two of them wait in the same queue.
    let locks = [&a, &a, &b].map(|client| client.one_owners(&name));
    for n in 0..9 {
        let who = n % 3;
        let (lock, inside) = (locks[who].clone(), inside.clone());
        tasks.spawn(async move {
            for _ in 0..5 {
                let guard = lock.acquire().await?;
                for (other, count) in inside.iter().enumerate() {
                    let count = count.load(Ordering::SeqCst);
                    assert!(other == who || count == 0, "{who} and {other} are in");
                }
                inside[who].fetch_add(1, Ordering::SeqCst);
                yield_now().await;
                guard.check()?;
                inside[who].fetch_sub(1, Ordering::SeqCst);
                guard.release().await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task panics")?;
    }
    assert_eq!(count_seen(&b, &name).await?, 0);
    Ok(())
}
