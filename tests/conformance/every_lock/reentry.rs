//! Owners, which may hold a lock more than once.

use std::time::Duration;

use distlock::{Error, Lease, Lock, Owner};
use tokio::time::sleep;

use crate::stage::{
    CaseResult, Family, PATIENCE, Player, Stage, asked, begun, count_seen, in_time, seen, waits,
};
use crate::support::eventually;

with_every_lock! {
    ;
    an_owner_re_enters_its_lock,
    an_owner_re_enters_its_lock_while_others_wait,
    an_owner_may_be_in_several_tasks,
    an_owner_re_enters_a_handed_off_lock,
    an_owner_of_another_client_is_refused,
    two_owners_exclude_each_other,
    an_owner_and_a_call_without_owner_exclude_each_other,
    an_owner_holds_each_lock_separately,
    guards_of_one_owner_are_released_in_any_order,
    a_dropped_nested_guard_decrements_the_count,
    a_dropped_nested_call_decrements_the_count,
    an_owner_whose_lease_has_just_expired_starts_a_new_hold,
    every_first_acquisition_has_a_unique_owner_in_the_store,
}

fn owned<F: Family>(by: &Player<F>, name: &str, owner: &Owner) -> Lock<F::Kind> {
    by.lock(name).with_owner(owner)
}

async fn an_owner_re_enters_its_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let me = a.new_owner();
    let lock = owned(&a, &name, &me);

    let outer = lock.acquire().await?;
    let inner = in_time(lock.acquire()).await?;
    // A clone is the same owner, and a new value of the same name is the same lock.
    let third = owned(&a, &name, &me.clone()).try_acquire().await?;
    let third = third.expect("the owner has it");
    let fourth = lock.acquire_timeout(PATIENCE).await?;
    let fourth = fourth.expect("the owner has it");
    for guard in [&outer, &inner, &third, &fourth] {
        assert!(guard.is_held());
        assert_eq!(guard.hold_count(), 4);
        assert_eq!(guard.owner(), outer.owner());
    }
    let lock = seen(&b, &name).await?;
    assert_eq!(lock.holders.len(), 1);
    assert_eq!(lock.holders[0].owner, outer.owner());
    assert_eq!(lock.holders[0].hold_count, b.counted(4));
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    Ok(())
}

/// Queued behind the waiters, the owner would wait for itself.
async fn an_owner_re_enters_its_lock_while_others_wait(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = owned(&a, &name, &a.new_owner());

    let outer = lock.acquire().await?;
    let mut near = begun(a.lock(&*name).acquire()).await;
    let mut far = begun(b.lock(&*name).acquire()).await;
    assert!(waits(&mut near).await && waits(&mut far).await);
    let inner = in_time(lock.acquire()).await?;
    assert_eq!(inner.hold_count(), 2);
    outer.release().await?;
    assert!(waits(&mut near).await && waits(&mut far).await);
    assert!(inner.is_held());
    inner.release().await?;

    // Either waiter may be first.
    let near = async { in_time(near).await?.release().await };
    let far = async { in_time(far).await?.release().await };
    let (near, far) = tokio::join!(near, far);
    near.and(far)
}

async fn an_owner_may_be_in_several_tasks(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = owned(&client, &name, &client.new_owner());
    let outer = lock.acquire().await?;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let lock = lock.clone();
        tasks.push(tokio::spawn(async move { lock.acquire().await }));
    }
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.expect("no task panics")?);
    }
    assert_eq!(outer.hold_count(), 5);
    assert_eq!(count_seen(&client, &name).await?, client.counted(5));
    for guard in guards {
        guard.release().await?;
    }
    assert_eq!(count_seen(&client, &name).await?, 1);
    outer.release().await
}

async fn an_owner_re_enters_a_handed_off_lock(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = owned(&client, &name, &client.new_owner());
    let held = client.lock(&*name).acquire().await?;
    let waiting = begun(lock.acquire()).await;
    held.release().await?;
    let outer = in_time(waiting).await?;
    let inner = lock.try_acquire().await?.expect("its owner has it");
    assert_eq!(count_seen(&client, &name).await?, client.counted(2));
    outer.release().await?;
    assert!(client.lock(&*name).try_acquire().await?.is_none());
    inner.release().await
}

async fn an_owner_of_another_client_is_refused(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let stranger = a.new_owner();
    let _held = owned(&a, &name, &stranger).acquire().await?;

    let lock = owned(&b, &name, &stranger);
    let refused = |error| {
        matches!(
            error,
            Error::InvalidOption {
                option: "owner",
                ..
            }
        )
    };
    assert!(lock.acquire().await.is_err_and(refused));
    assert!(lock.try_acquire().await.is_err_and(refused));
    assert!(lock.acquire_timeout(PATIENCE).await.is_err_and(refused));
    let done = lock.run(async |_| ()).await.map_err(Error::from);
    assert!(done.is_err_and(refused));
    Ok(())
}

async fn two_owners_exclude_each_other(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let one = owned(&client, &name, &client.new_owner());
    let two = owned(&client, &name, &client.new_owner());
    let held = one.acquire().await?;
    assert!(two.try_acquire().await?.is_none());
    let mut waiting = begun(two.acquire()).await;
    assert!(waits(&mut waiting).await);
    held.release().await?;
    let held = in_time(waiting).await?;
    assert!(one.try_acquire().await?.is_none());
    held.release().await
}

async fn an_owner_and_a_call_without_owner_exclude_each_other(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let mine = owned(&client, &name, &client.new_owner());
    let nobodys = client.lock(&*name);
    let held = mine.acquire().await?;
    assert!(nobodys.try_acquire().await?.is_none());
    held.release().await?;
    let held = nobodys.acquire().await?;
    assert!(mine.try_acquire().await?.is_none());
    held.release().await
}

async fn an_owner_holds_each_lock_separately(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let (one, two) = (stage.name("one"), stage.name("two"));
    let me = a.new_owner();
    let first = owned(&a, &one, &me).acquire().await?;
    let other = owned(&a, &two, &me).acquire().await?;
    assert_eq!((first.hold_count(), other.hold_count()), (1, 1));
    first.release().await?;
    assert!(other.is_held());
    let got = b.lock(&*one).try_acquire().await?;
    assert!(got.is_some());
    assert!(b.lock(&*two).try_acquire().await?.is_none());
    Ok(())
}

async fn guards_of_one_owner_are_released_in_any_order(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let lock = owned(&a, &name, &a.new_owner());
        let mut guards = [None, None, None];
        for (n, guard) in guards.iter_mut().enumerate() {
            let guard = guard.insert(lock.acquire().await?);
            assert_eq!(guard.hold_count() as usize, n + 1);
            assert_eq!(count_seen(&b, &name).await?, b.counted((n + 1) as u64));
        }
        for (gone, n) in order.into_iter().enumerate() {
            let guard = guards[n].take().expect("each goes once");
            assert!(b.lock(&*name).try_acquire().await?.is_none());
            guard.release().await?;
            let left = 2 - gone;
            assert_eq!(count_seen(&b, &name).await?, b.counted((left) as u64));
            for guard in guards.iter().flatten() {
                assert!(guard.is_held());
                assert_eq!(guard.hold_count() as usize, left);
            }
        }
        let got = b.lock(&*name).try_acquire().await?;
        got.expect("the last has gone").release().await?;
    }
    Ok(())
}

async fn a_dropped_nested_guard_decrements_the_count(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = owned(&a, &name, &a.new_owner());
    let outer = lock.acquire().await?;
    let inner = lock.acquire().await?;
    let third = lock.acquire().await?;
    assert_eq!(count_seen(&b, &name).await?, b.counted(3));
    drop(outer);
    assert_eq!(inner.hold_count(), 2);
    eventually(PATIENCE, "the store counts two", async || {
        count_seen(&b, &name)
            .await
            .is_ok_and(|count| count == b.counted(2))
    })
    .await;
    drop(third);
    eventually(PATIENCE, "the store counts one", async || {
        count_seen(&b, &name).await.is_ok_and(|count| count == 1)
    })
    .await;
    assert!(inner.is_held());
    drop(inner);
    let got = b.lock(&*name).acquire_timeout(PATIENCE).await?;
    got.expect("the last has gone").release().await
}

async fn a_dropped_nested_call_decrements_the_count(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = owned(&a, &name, &a.new_owner());
    let outer = lock.acquire().await?;
    for _ in 0..10 {
        drop(asked(lock.acquire()).await);
    }
    eventually(PATIENCE, "the store counts one", async || {
        count_seen(&b, &name).await.is_ok_and(|count| count == 1)
    })
    .await;
    assert_eq!(outer.hold_count(), 1);
    let inner = lock.acquire().await?;
    assert_eq!(count_seen(&b, &name).await?, b.counted(2));
    inner.release().await?;
    outer.check()?;
    assert_eq!(count_seen(&b, &name).await?, 1);
    outer.release().await
}

/// The client may have noticed the end of the lease by then, or not.
async fn an_owner_whose_lease_has_just_expired_starts_a_new_hold(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = owned(&client, &name, &client.new_owner());
    let brief = lock
        .clone()
        .with_lease(Lease::Fixed(Duration::from_millis(1500)));
    for _ in 0..3 {
        let old = brief.acquire().await?;
        sleep(old.remaining()).await;
        while old.is_held() {
            sleep(Duration::from_micros(100)).await;
        }
        let new = in_time(lock.acquire()).await?;
        assert_eq!(new.hold_count(), 1);
        assert!(!old.is_held());
        new.release().await?;
    }
    Ok(())
}

/// A release that is still under way can therefore never meet a later hold.
async fn every_first_acquisition_has_a_unique_owner_in_the_store(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = owned(&client, &name, &client.new_owner());
    let mut owners = Vec::new();
    for _ in 0..3 {
        let held = lock.acquire().await?;
        let seen = seen(&client, &name).await?;
        assert_eq!(seen.holders[0].owner, held.owner());
        assert!(!owners.contains(&held.owner()));
        owners.push(held.owner());
        held.release().await?;
    }
    Ok(())
}
