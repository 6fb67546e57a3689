//! The properties of a semaphore beyond those of every lock: many permits.

use std::time::Duration;

use distlock::{Client, Error, Guard, Lease, LostReason, Permit, Semaphore as Many};

use crate::stage::{CaseResult, PATIENCE, Semaphore, Stage, begun, in_time, seen, waits};
use crate::support::SeededRng;

on_every_engine_with_scripts! { play with Semaphore:
    as_many_clients_hold_it_at_once_as_there_are_permits,
    there_are_no_permits_until_the_total_is_set,
    a_higher_total_lets_waiters_in,
    a_total_below_the_permits_in_use_lets_no_waiter_in,
    the_total_is_set_once,
    a_permit_is_released_by_its_id_once,
    a_guard_is_notified_that_one_of_its_permits_was_released,
    a_release_reports_that_permits_were_no_longer_held,
    a_deleted_semaphore_notifies_its_holders,
    invalid_arguments_are_rejected,
    a_lock_and_a_semaphore_cannot_share_a_name,
    thousands_of_permits_expire_by_themselves,
    no_permit_is_lost_or_duplicated,
}

mod of_one_client;
mod seen;
mod several;

/// Longer than any case.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1500);

/// Returns one semaphore with this many permits, as two clients see it.
async fn two(stage: &Stage<Semaphore>, permits: u32) -> Result<(Many, Many), Error> {
    let (a, b) = stage.clients().await?;
    let name = stage.name("exports");
    let semaphore = a.semaphore(&*name);
    semaphore.set_total(permits).await?;
    Ok((semaphore, b.semaphore(&*name)))
}

/// Waits until a waiter is queued.
async fn somebody_is_in_line(stage: &Stage<Semaphore>) -> CaseResult {
    let (client, name) = (stage.client().await?, stage.name("exports"));
    let placed = async {
        while seen(&client, &name).await?.waiting.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    in_time(placed).await
}

async fn counts(semaphore: &Many, available: i64, out: u64) -> CaseResult {
    let count = semaphore.count().await?;
    assert_eq!((count.available, count.out), (available, out));
    Ok(())
}

async fn release(guards: Vec<Guard<Permit>>) -> CaseResult {
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn as_many_clients_hold_it_at_once_as_there_are_permits(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, b) = two(stage, 3).await?;
    let mut held = Vec::new();
    for semaphore in [&a, &b, &a] {
        held.push(semaphore.permit().acquire().await?);
    }
    counts(&b, 0, 3).await?;
    for semaphore in [&a, &b] {
        assert!(semaphore.permit().try_acquire().await?.is_none());
    }
    let waiting = begun(b.permit().acquire()).await;
    held.remove(0).release().await?;
    held.push(in_time(waiting).await?);
    counts(&a, 0, 3).await?;
    release(held).await?;
    counts(&a, 3, 0).await
}

async fn there_are_no_permits_until_the_total_is_set(stage: &Stage<Semaphore>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("exports");
    let (a, b) = (a.semaphore(&*name), b.semaphore(&*name));
    counts(&a, 0, 0).await?;
    assert!(a.permit().try_acquire().await?.is_none());
    let mut waiting = begun(a.permit().acquire()).await;
    assert!(waits(&mut waiting).await);
    // The first client to send an acquire sets the total with the same request.
    let held = b.clone().with_permits(2).permit().acquire().await?;
    let waited = in_time(waiting).await?;
    counts(&a, 0, 2).await?;
    // The total is already set.
    let more = b.clone().with_permits(9).permit();
    assert!(more.try_acquire().await?.is_none());
    release(vec![held, waited]).await?;
    counts(&b, 2, 0).await
}

async fn a_higher_total_lets_waiters_in(stage: &Stage<Semaphore>) -> CaseResult {
    let (a, b) = two(stage, 1).await?;
    let held = a.permit().acquire().await?;
    let waiting = begun(b.permit().acquire()).await;
    a.set_total(2).await?;
    let waited = in_time(waiting).await?;
    counts(&b, 0, 2).await?;
    release(vec![held, waited]).await
}

async fn a_total_below_the_permits_in_use_lets_no_waiter_in(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, b) = two(stage, 3).await?;
    let mut held = vec![a.permits(2).acquire().await?, b.permit().acquire().await?];
    b.set_total(1).await?;
    counts(&a, -2, 3).await?;
    held.remove(0).release().await?;
    counts(&a, 0, 1).await?;
    assert!(b.permit().try_acquire().await?.is_none());
    assert!(held[0].is_held());
    release(held).await?;
    counts(&a, 1, 0).await
}

async fn the_total_is_set_once(stage: &Stage<Semaphore>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("exports");
    let (a, b) = (a.semaphore(&*name), b.semaphore(&*name));
    assert!(a.try_set(2).await?);
    assert!(!b.try_set(7).await?);
    counts(&b, 2, 0).await?;
    assert!(b.delete().await?);
    assert!(!a.delete().await?);
    assert!(b.try_set(7).await?);
    counts(&a, 7, 0).await
}

async fn a_permit_is_released_by_its_id_once(stage: &Stage<Semaphore>) -> CaseResult {
    let (a, b) = two(stage, 2).await?;
    let held = a.permit().with_lease(Lease::Fixed(LONG)).acquire().await?;
    let id = held.permit_ids()[0];
    held.forget();
    counts(&b, 1, 1).await?;
    let both = begun(b.permits(2).acquire()).await;
    // The id went through another program as text.
    let id = id.to_string().parse().expect("it is an id");
    assert!(b.release(id).await?);
    let both = in_time(both).await?;
    assert!(!b.release(id).await?, "it takes none of another's");
    counts(&a, 0, 2).await?;
    both.release().await?;
    counts(&a, 2, 0).await
}

async fn a_guard_is_notified_that_one_of_its_permits_was_released(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, b) = two(stage, 3).await?;
    let held = a
        .permits(3)
        .with_lease(Lease::KeepAlive(SHORT * 4))
        .acquire()
        .await?;
    assert!(b.release(held.permit_ids()[1]).await?);
    let lost = in_time(held.lost()).await.expect("it was lost");
    assert_eq!(lost.reason, LostReason::Removed);
    drop(held);
    // The remaining permits are returned.
    in_time(b.permits(3).acquire()).await?.release().await?;
    counts(&a, 3, 0).await
}

/// Two of eight are returned by their ids first.
async fn a_release_reports_that_permits_were_no_longer_held(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, b) = two(stage, 8).await?;
    let held = a.permits(8).acquire().await?;
    let ids = held.permit_ids();
    assert!(b.release(ids[1]).await? && b.release(ids[6]).await?);
    let released = held.release().await;
    assert!(released.is_err_and(|error| error.is_lost()));
    // The other six are back, and none twice.
    counts(&b, 8, 0).await
}

async fn a_deleted_semaphore_notifies_its_holders(stage: &Stage<Semaphore>) -> CaseResult {
    let (a, b) = two(stage, 1).await?;
    let held = a
        .permit()
        .with_lease(Lease::KeepAlive(SHORT * 4))
        .acquire()
        .await?;
    assert!(b.delete().await?);
    let lost = in_time(held.lost()).await.expect("it was lost");
    assert_eq!(lost.reason, LostReason::Removed);
    drop(held);
    counts(&b, 0, 0).await
}

async fn invalid_arguments_are_rejected(stage: &Stage<Semaphore>) -> CaseResult {
    let client = stage.client().await?;
    let semaphore = client.semaphore(stage.name("exports"));
    semaphore.set_total(1).await?;
    let invalid = |error: Error| matches!(error, Error::InvalidOption { .. });
    for count in [0, 1 << 17] {
        let refused = semaphore.permits(count).try_acquire().await;
        assert!(refused.is_err_and(invalid), "{count}");
    }
    let owner = client.new_owner();
    let refused = semaphore.permit().with_owner(&owner).try_acquire().await;
    assert!(refused.is_err_and(invalid));
    let refused = client.semaphore("").count().await;
    assert!(refused.is_err());
    counts(&semaphore, 1, 0).await
}

async fn a_lock_and_a_semaphore_cannot_share_a_name(stage: &Stage<Semaphore>) -> CaseResult {
    let client: Client = (*stage.client().await?).clone();
    let wrong = |error: Error| matches!(error, Error::WrongKind { .. });
    let name = stage.name("lock");
    let lock = client.lock(&*name).acquire().await?;
    let semaphore = client.semaphore(&*name);
    assert!(semaphore.permit().try_acquire().await.is_err_and(wrong));
    assert!(semaphore.set_total(1).await.is_err_and(wrong));
    assert!(semaphore.count().await.is_err_and(wrong));
    lock.release().await?;
    let name = stage.name("semaphore");
    client.semaphore(&*name).set_total(1).await?;
    let taken = client.lock(&*name).try_acquire().await;
    assert!(taken.is_err_and(wrong));
    let taken = client.rw_lock(&*name).write().try_acquire().await;
    assert!(taken.is_err_and(wrong));
    counts(&client.semaphore(&*name), 1, 0).await
}

/// The permits belong to crashed holders.
async fn thousands_of_permits_expire_by_themselves(stage: &Stage<Semaphore>) -> CaseResult {
    let (a, b) = two(stage, 4_000).await?;
    for _ in 0..4 {
        // A thousand permits take some time in a file.
        let lease = Lease::Fixed(SHORT * 4);
        let held = a.permits(1000).with_lease(lease).acquire().await?;
        held.forget();
    }
    let all = b.permits(4_000).acquire_timeout(PATIENCE).await?;
    let all = all.expect("all have come back");
    counts(&a, 0, 4_000).await?;
    all.release().await?;
    counts(&a, 4_000, 0).await
}

/// Permits are acquired, released, dropped, abandoned or left to their leases.
async fn no_permit_is_lost_or_duplicated(stage: &Stage<Semaphore>) -> CaseResult {
    const TOTAL: u32 = 7;
    let mut seeds = SeededRng::from_env_or(8);
    let (a, b) = two(stage, TOTAL).await?;
    let mut tasks = Vec::new();
    for number in 0..8 {
        let semaphore = if number % 2 == 0 { &a } else { &b }.clone();
        let mut rng = SeededRng::new(seeds.next_u64());
        tasks.push(tokio::spawn(async move {
            for _ in 0..30 {
                let lock = semaphore.permits(1 + u32::try_from(rng.below(4)).unwrap_or(0));
                let patience = Duration::from_millis(rng.below(40));
                let lock = lock.with_lease(Lease::KeepAlive(LONG));
                let got = match rng.below(3) {
                    0 => lock.try_acquire().await,
                    1 => lock.acquire_timeout(patience).await,
                    _ => {
                        let acquired = tokio::time::timeout(patience, lock.acquire()).await;
                        acquired.ok().transpose()
                    }
                };
                let guard = match got {
                    Ok(Some(guard)) => guard,
                    // A busy machine may reply later than the time-out of some waiters.
                    Ok(None) | Err(Error::Timeout { .. }) => continue,
                    Err(error) => return Err(error),
                };
                let count = semaphore.count().await?;
                let out = i64::try_from(count.out).unwrap_or(i64::MAX);
                assert_eq!(count.available + out, i64::from(TOTAL));
                assert!(count.available >= 0);
                match rng.below(3) {
                    0 => drop(guard),
                    1 => {
                        for id in guard.permit_ids() {
                            assert!(semaphore.release(id).await?);
                        }
                        guard.forget();
                    }
                    _ => guard.release().await?,
                }
            }
            Ok::<_, Error>(())
        }));
    }
    for task in tasks {
        in_time(task).await.expect("no panic")?;
    }
    let all = in_time(a.permits(TOTAL).acquire()).await?;
    all.release().await?;
    counts(&b, TOTAL.into(), 0).await
}
