//! Leases inside leases: the lease of one guard of an owner never shortens the lease of another.

use std::time::Duration;

use distlock::{Client, Error, Lease, LostReason};
use tokio::time::{Instant, sleep};

use crate::stage::{CaseResult, Family, Stage, begun, in_time, seen};

with_every_lock! {
    ;
    a_short_lease_nested_in_a_long_one_does_not_shorten_it,
    renewals_of_a_short_lease_nested_in_a_long_one_do_not_shorten_it,
    a_renewed_lease_survives_a_nested_fixed_one,
    a_fixed_lease_survives_for_as_long_as_a_nested_one_is_renewed,
    a_fixed_lease_ends_when_the_nested_one_is_no_longer_renewed,
    a_long_lease_nested_in_a_short_one_lengthens_it,
    max_hold_of_a_nested_guard_ends_with_it,
}

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(3);

async fn ttl(by: &Client, name: &str) -> Result<Duration, Error> {
    Ok(seen(by, name).await?.ttl.expect("it has an end"))
}

/// In Redisson, a lease of 600 s became 1 s.
async fn a_short_lease_nested_in_a_long_one_does_not_shorten_it(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    for inner in [Lease::Fixed(SHORT), Lease::KeepAlive(SHORT)] {
        let lock = client.one_owners(&name);
        let outer = lock
            .clone()
            .with_lease(Lease::Fixed(LONG))
            .acquire()
            .await?;
        let inner = lock.with_lease(inner).acquire().await?;
        assert!(ttl(&client, &name).await? > LONG * 9 / 10);
        assert!(inner.remaining() > LONG * 9 / 10, "the lock is the owner's");
        inner.release().await?;
        assert!(ttl(&client, &name).await? > LONG * 9 / 10);
        assert!(outer.remaining() > LONG * 9 / 10);
        outer.release().await?;
    }
    Ok(())
}

async fn renewals_of_a_short_lease_nested_in_a_long_one_do_not_shorten_it(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.one_owners(&name);
    let outer = lock
        .clone()
        .with_lease(Lease::Fixed(LONG))
        .acquire()
        .await?;
    let inner = lock.with_lease(Lease::KeepAlive(SHORT)).acquire().await?;
    // The sleep is longer than the inner lease, and than several of its renewals.
    sleep(SHORT * 3 / 2).await;
    assert!(ttl(&b, &name).await? > LONG * 9 / 10);
    assert!(outer.remaining() > LONG * 9 / 10);
    inner.release().await?;
    sleep(SHORT).await;
    assert!(ttl(&b, &name).await? > LONG * 9 / 10);
    outer.release().await
}

/// Redisson's watchdog forgot the outer hold.
async fn a_renewed_lease_survives_a_nested_fixed_one(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.one_owners(&name);
    let lease = Duration::from_secs(4);
    let outer = lock
        .clone()
        .with_lease(Lease::KeepAlive(lease))
        .acquire()
        .await?;
    let inner = lock
        .clone()
        .with_lease(Lease::Fixed(lease))
        .acquire()
        .await?;
    inner.release().await?;
    let inner = lock.with_lease(Lease::Fixed(lease)).acquire().await?;
    drop(inner);
    sleep(lease * 3 / 2).await;
    outer.check()?;
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    outer.release().await
}

async fn a_fixed_lease_survives_for_as_long_as_a_nested_one_is_renewed(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.one_owners(&name);
    let lease = Duration::from_secs(4);
    let outer = lock
        .clone()
        .with_lease(Lease::Fixed(lease))
        .acquire()
        .await?;
    let inner = lock.with_lease(Lease::KeepAlive(lease)).acquire().await?;
    sleep(lease * 3 / 2).await;
    outer.check()?;
    inner.check()?;
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    inner.release().await?;
    outer.release().await
}

async fn a_fixed_lease_ends_when_the_nested_one_is_no_longer_renewed(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.one_owners(&name);
    let outer = lock
        .clone()
        .with_lease(Lease::Fixed(SHORT))
        .acquire()
        .await?;
    let inner = lock.with_lease(Lease::KeepAlive(SHORT)).acquire().await?;
    sleep(SHORT / 2).await;
    let released = Instant::now();
    inner.release().await?;
    let waiting = begun(b.lock(&*name).acquire()).await;
    let lost = in_time(outer.lost()).await.expect("it was lost");
    assert_eq!(lost.reason, LostReason::Expired);
    in_time(waiting).await?.release().await?;
    let taken = released.elapsed();
    assert!(taken < SHORT + stage.slack(), "it was renewed: {taken:?}");
    Ok(())
}

async fn a_long_lease_nested_in_a_short_one_lengthens_it(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.one_owners(&name);
    let outer = lock
        .clone()
        .with_lease(Lease::Fixed(SHORT))
        .acquire()
        .await?;
    let inner = lock.with_lease(Lease::Fixed(LONG)).acquire().await?;
    assert!(outer.remaining() > LONG * 9 / 10);
    // The longer lease stays, even after the release of the guard that requested it.
    inner.release().await?;
    sleep(SHORT * 3 / 2).await;
    outer.check()?;
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    outer.release().await
}

async fn max_hold_of_a_nested_guard_ends_with_it(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.one_owners(&stage.name("stock"));
    let outer = lock.acquire().await?;
    let inner = lock.with_max_hold(SHORT).acquire().await?;
    inner.release().await?;
    sleep(SHORT * 3 / 2).await;
    outer.release().await
}
