//! The counting semaphore: its permits, of which none is lost or made up.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use distlock::{Client, Error};
use tokio::task::JoinSet;

use crate::stage::{CaseResult, PATIENCE, Plain, Stage, begun, in_time, waits};

mod waiting;

on_every_engine_with_scripts! { play with Plain:
    permits_are_acquired_and_released,
    an_unset_semaphore_has_no_permits,
    the_number_of_permits_is_set_once_or_replaced,
    acquiring_no_permits_sends_no_request,
    the_number_of_permits_may_be_negative,
    all_available_permits_are_drained,
    a_deleted_semaphore_is_forgotten_and_its_waiters_continue_to_wait,
    more_permits_than_can_be_counted_are_refused,
    permits_and_a_lock_of_one_name_are_distinguished,
    permits_outlive_the_client_that_acquired_them,
    a_closed_client_waits_for_no_permits,
    many_clients_never_hold_more_permits_than_the_total,
}

async fn permits_are_acquired_and_released(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    let (ours, theirs) = (a.counting_semaphore(&*name), b.counting_semaphore(&*name));
    assert!(ours.try_set(3).await?);
    theirs.acquire(2).await?;
    assert_eq!(ours.available().await?, 1);
    assert!(!ours.try_acquire(2).await?);
    assert!(ours.try_acquire(1).await?);
    assert_eq!(ours.available().await?, 0);
    // Any client may release the permits.
    ours.release(3).await?;
    assert_eq!(theirs.available().await?, 3);
    assert!(ours.acquire_timeout(3, PATIENCE).await?);
    ours.release(3).await
}

async fn an_unset_semaphore_has_no_permits(stage: &Stage<Plain>) -> CaseResult {
    let client = stage.client().await?;
    let slots = client.counting_semaphore(stage.name("slots"));
    assert_eq!(slots.available().await?, 0);
    assert!(!slots.try_acquire(1).await?);
    assert_eq!(slots.drain().await?, 0);
    assert!(!slots.delete().await?);
    assert!(slots.try_set(1).await?, "nothing of that is left");
    assert!(slots.delete().await?);
    slots.release(2).await?;
    assert_eq!(slots.available().await?, 2, "as Redisson has it");
    Ok(())
}

async fn the_number_of_permits_is_set_once_or_replaced(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    assert!(a.counting_semaphore(&*name).try_set(0).await?);
    assert!(
        !b.counting_semaphore(&*name).try_set(9).await?,
        "none is a number, too"
    );
    b.counting_semaphore(&*name).set_available(9).await?;
    assert_eq!(a.counting_semaphore(&*name).available().await?, 9);
    a.counting_semaphore(&*name).set_available(2).await?;
    assert_eq!(b.counting_semaphore(&*name).available().await?, 2);
    Ok(())
}

async fn acquiring_no_permits_sends_no_request(stage: &Stage<Plain>) -> CaseResult {
    let client = stage.client().await?;
    let slots = client.counting_semaphore(stage.name("slots"));
    slots.acquire(0).await?;
    assert!(slots.try_acquire(0).await?);
    assert!(slots.acquire_timeout(0, Duration::ZERO).await?);
    slots.release(0).await?;
    slots.add(0).await?;
    assert!(!slots.delete().await?, "nothing was made of it");
    let nameless = client.counting_semaphore("").acquire(0).await;
    assert!(
        matches!(nameless, Err(Error::InvalidName { .. })),
        "{nameless:?}"
    );
    Ok(())
}

async fn the_number_of_permits_may_be_negative(stage: &Stage<Plain>) -> CaseResult {
    let client = stage.client().await?;
    let slots = client.counting_semaphore(stage.name("slots"));
    slots.try_set(2).await?;
    slots.acquire(2).await?;
    slots.add(-3).await?;
    assert_eq!(slots.available().await?, -3);
    assert_eq!(slots.drain().await?, 0, "none is made up");
    assert_eq!(slots.available().await?, -3);
    let waits_for = client.counting_semaphore(slots.name());
    let mut waiting = begun(async move { waits_for.acquire(1).await }).await;
    slots.release(3).await?;
    assert!(waits(&mut waiting).await, "there are none yet");
    slots.add(1).await?;
    in_time(waiting).await?;
    assert_eq!(slots.available().await?, 0);
    Ok(())
}

async fn all_available_permits_are_drained(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    a.counting_semaphore(&*name).try_set(7).await?;
    a.counting_semaphore(&*name).acquire(2).await?;
    assert_eq!(b.counting_semaphore(&*name).drain().await?, 5);
    assert_eq!(a.counting_semaphore(&*name).available().await?, 0);
    assert!(
        !a.counting_semaphore(&*name).try_set(7).await?,
        "it is still there"
    );
    b.counting_semaphore(&*name).release(5).await?;
    assert_eq!(a.counting_semaphore(&*name).available().await?, 5);
    Ok(())
}

async fn a_deleted_semaphore_is_forgotten_and_its_waiters_continue_to_wait(
    stage: &Stage<Plain>,
) -> CaseResult {
    let client = stage.client().await?;
    let slots = client.counting_semaphore(stage.name("slots"));
    slots.try_set(1).await?;
    let waits_for = client.counting_semaphore(slots.name());
    let mut waiting = begun(async move { waits_for.acquire(2).await }).await;
    assert!(slots.delete().await?);
    assert!(!slots.delete().await?);
    assert_eq!(slots.available().await?, 0);
    assert!(waits(&mut waiting).await);
    assert!(slots.try_set(2).await?);
    in_time(waiting).await
}

async fn more_permits_than_can_be_counted_are_refused(stage: &Stage<Plain>) -> CaseResult {
    let client = stage.client().await?;
    let slots = client.counting_semaphore(stage.name("slots"));
    let most = (1 << 53) - 1;
    slots.add(most).await?;
    for more in [1, most, i64::MAX] {
        let refused = slots.add(more).await;
        assert!(
            matches!(refused, Err(Error::InvalidOption { .. })),
            "{refused:?}"
        );
    }
    let refused = slots.release(1).await;
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    assert_eq!(slots.available().await?, most);
    let none = stage.client().await?.counting_semaphore(stage.name("none"));
    let refused = none.add(i64::MIN).await;
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    let refused = slots.add(i64::MIN).await;
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    slots.acquire(u32::MAX).await?;
    assert_eq!(slots.available().await?, most - i64::from(u32::MAX));
    Ok(())
}

async fn permits_and_a_lock_of_one_name_are_distinguished(stage: &Stage<Plain>) -> CaseResult {
    let client: Client = (*stage.client().await?).clone();
    let name = stage.name("both");
    let guard = client.lock(&*name).acquire().await?;
    let slots = client.counting_semaphore(&*name);
    for error in [
        slots.try_set(1).await.map(drop).unwrap_err(),
        slots.set_available(1).await.unwrap_err(),
        slots.available().await.map(drop).unwrap_err(),
        slots.acquire(1).await.unwrap_err(),
        slots.acquire(2).await.unwrap_err(),
        slots.try_acquire(1).await.map(drop).unwrap_err(),
        slots.release(1).await.unwrap_err(),
        slots.drain().await.map(drop).unwrap_err(),
        slots.delete().await.map(drop).unwrap_err(),
    ] {
        let told = matches!(&error, Error::WrongKind { name: of, .. } if **of == *name);
        assert!(told, "{error:?}");
    }
    guard.release().await?;
    assert!(slots.try_set(1).await?, "the lock has gone");
    let refused = client.lock(&*name).try_acquire().await;
    assert!(
        matches!(refused, Err(Error::WrongKind { .. })),
        "{refused:?}"
    );
    in_time(slots.acquire(1)).await
}

/// The permits have no owner: a permit that is not released stays in use.
async fn permits_outlive_the_client_that_acquired_them(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    a.counting_semaphore(&*name).try_set(3).await?;
    b.counting_semaphore(&*name).acquire(1).await?;
    in_time(b.counting_semaphore(&*name).acquire(1)).await?;
    b.close().await?;
    drop(b);
    assert_eq!(a.counting_semaphore(&*name).available().await?, 1);
    a.counting_semaphore(&*name).release(2).await?;
    assert_eq!(a.counting_semaphore(&*name).available().await?, 3);
    Ok(())
}

async fn a_closed_client_waits_for_no_permits(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    a.counting_semaphore(&*name).try_set(1).await?;
    let big = b.counting_semaphore(&*name);
    let mut waiting = begun(big.acquire(2)).await;
    assert!(waits(&mut waiting).await);
    b.close().await?;
    let ended = in_time(waiting).await;
    assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
    let refused = big.acquire(0).await;
    assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
    // The closed client's waiter has left the queue.
    in_time(a.counting_semaphore(&*name).acquire(1)).await
}

async fn many_clients_never_hold_more_permits_than_the_total(stage: &Stage<Plain>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("slots");
    a.counting_semaphore(&*name).try_set(4).await?;
    let out = Arc::new(AtomicI64::new(0));
    let mut running = JoinSet::new();
    for task in 0..20 {
        let client = [&a, &b][task % 2];
        let slots = client.counting_semaphore(&*name);
        let out = out.clone();
        running.spawn(async move {
            for round in 0..5 {
                let many = 1 + u32::try_from((task + round) % 4).expect("a few");
                slots.acquire(many).await?;
                let now = out.fetch_add(i64::from(many), Ordering::SeqCst);
                assert!(now + i64::from(many) <= 4, "{now} and {many}");
                tokio::task::yield_now().await;
                out.fetch_sub(i64::from(many), Ordering::SeqCst);
                slots.release(many).await?;
            }
            Ok::<(), Error>(())
        });
    }
    for ended in in_time(running.join_all()).await {
        ended?;
    }
    assert_eq!(a.counting_semaphore(&*name).available().await?, 4);
    Ok(())
}
