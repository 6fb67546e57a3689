//! Leases: how long a lock stays held.

use std::time::Duration;

use distlock::{Error, Lease, LostReason};
use tokio::time::{Instant, sleep};

use crate::stage::{CaseResult, Family, PATIENCE, Stage, begun, in_time, seen, soon};

with_every_lock! {
    a_fixed_lease_expires_and_the_next_waiter_gets_the_lock,
    a_fixed_lease_is_not_renewed,
    a_renewed_lease_lasts_many_times_its_length,
    a_renewed_lease_ends_with_its_guard,
    a_lock_without_its_own_lease_has_that_of_the_client,
    a_guard_reports_its_remaining_validity,
    max_hold_ends_the_hold_and_frees_the_lock,
    max_hold_does_not_lengthen_a_lease,
    a_forgotten_lock_stays_held_for_its_lease,
    invalid_leases_are_rejected,
}

over_tls! {
    a_renewed_lease_lasts_many_times_its_length,
}

/// Long enough for several calls within one lease, also on a busy machine.
const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(600);

async fn a_fixed_lease_expires_and_the_next_waiter_gets_the_lock(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    // The lease ends before a waiter would poll by itself.
    let lease = Duration::from_secs(1);
    for waiter in [&a, &b] {
        // No message is needed: the waiter at the head of the queue knows when the lease ends.
        soon(stage, async || {
            let asked = Instant::now();
            let fixed = a.lock(&*name).with_lease(Lease::Fixed(lease));
            let held = fixed.acquire().await?;
            let lost = held.lost();
            let next = in_time(waiter.lock(&*name).acquire()).await?;
            let taken = asked.elapsed();
            assert!(
                taken >= lease.mul_f64(0.95),
                "it was still theirs: {taken:?}"
            );
            assert!(!held.is_held(), "two guards are valid");
            assert!(next.is_held());
            let lost = in_time(lost).await.expect("it was lost");
            assert_eq!(lost.reason, LostReason::Expired);
            assert_eq!(*lost.name, *name);
            next.release().await?;
            Ok(taken)
        })
        .await?;
    }
    Ok(())
}

async fn a_fixed_lease_is_not_renewed(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let held = client
        .lock(&*name)
        .with_lease(Lease::Fixed(SHORT))
        .acquire()
        .await?;
    assert!(held.is_held());
    let lost = in_time(held.lost()).await.expect("it was lost");
    assert_eq!(lost.reason, LostReason::Expired);
    assert!(!held.is_held());
    assert_eq!(held.remaining(), Duration::ZERO);
    Ok(())
}

async fn a_renewed_lease_lasts_many_times_its_length(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    // A busy machine may delay a renewal by two thirds of the lease without loss of the lock.
    let lease = SHORT * 2;
    let held = a
        .lock(&*name)
        .with_lease(Lease::KeepAlive(lease))
        .acquire()
        .await?;
    for _ in 0..4 {
        sleep(lease / 2).await;
        held.check()?;
        assert!(b.lock(&*name).try_acquire().await?.is_none());
        let ttl = seen(&b, &name).await?.ttl.expect("it has an end");
        assert!(ttl <= lease, "it would outlive its process: {ttl:?}");
    }
    held.release().await
}

async fn a_renewed_lease_ends_with_its_guard(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lease = Lease::KeepAlive(SHORT * 2);
    let held = a.lock(&*name).with_lease(lease).acquire().await?;
    // The lease is renewed once, and is released before its next renewal.
    sleep(SHORT).await;
    held.release().await?;
    // A late renewal would renew the next holder's lock, or make up a lock that is free.
    let held = b
        .lock(&*name)
        .with_lease(Lease::Fixed(LONG))
        .acquire()
        .await?;
    sleep(SHORT).await;
    let seen = seen(&a, &name).await?;
    assert_eq!(seen.holders[0].owner, held.owner());
    assert!(seen.ttl.is_some_and(|ttl| ttl > LONG / 2));
    held.release().await?;
    sleep(SHORT).await;
    assert_eq!(a.admin().inspect(&name).await?, None);
    Ok(())
}

async fn a_lock_without_its_own_lease_has_that_of_the_client(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let hour = Duration::from_secs(3600);
    let usual = stage.client().await?;
    let hourly = stage.builder().default_lease(Lease::Fixed(hour));
    let other = stage.connect(hourly).await?;
    for (client, lease) in [(&usual, Duration::from_secs(30)), (&other, hour)] {
        let name = stage.name("stock");
        let held = client.lock(&*name).acquire().await?;
        let ttl = seen(client, &name).await?.ttl.expect("it has an end");
        assert!(ttl <= lease && ttl > lease / 2, "{ttl:?} of {lease:?}");
        held.release().await?;
    }
    Ok(())
}

async fn a_guard_reports_its_remaining_validity(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lease = Duration::from_secs(60);
    let held = client
        .lock(&*name)
        .with_lease(Lease::Fixed(lease))
        .acquire()
        .await?;
    let before = std::time::Instant::now();
    let (until, left) = (held.valid_until(), held.remaining());
    // For the holder the lease ends a little earlier than for the store.
    let ttl = seen(&client, &name).await?.ttl.expect("it has an end");
    let since = before.elapsed() + Duration::from_millis(1);
    assert!(left < ttl + since && left < lease, "{left:?} of {ttl:?}");
    assert!(left > lease / 2);
    assert!(until <= before + lease && until > before + lease / 2);
    sleep(Duration::from_millis(20)).await;
    assert!(held.remaining() <= left - Duration::from_millis(15));
    let view = held.held();
    held.release().await?;
    assert_eq!(view.remaining(), Duration::ZERO);
    Ok(())
}

async fn max_hold_ends_the_hold_and_frees_the_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for lease in [Lease::KeepAlive(LONG), Lease::Fixed(LONG)] {
        let lock = a.lock(&*name).with_lease(lease).with_max_hold(SHORT);
        let begun_at = Instant::now();
        let held = lock.acquire().await?;
        assert!(held.remaining() <= SHORT);
        let waiting = begun(b.lock(&*name).acquire()).await;
        let lost = in_time(held.lost()).await.expect("it was lost");
        assert_eq!(lost.reason, LostReason::MaxHold);
        let after = begun_at.elapsed();
        assert!(
            after >= SHORT && after < SHORT + stage.slack(),
            "after {after:?}"
        );
        assert!(!held.is_held());
        let reason = |error| {
            matches!(
                error,
                Error::Lost {
                    reason: LostReason::MaxHold,
                    ..
                }
            )
        };
        assert!(held.check().is_err_and(reason));

        // The waiter does not wait until the lease of ten minutes ends.
        in_time(waiting).await?.release().await?;
        assert!(held.release().await.is_err_and(reason));
    }
    Ok(())
}

async fn max_hold_does_not_lengthen_a_lease(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));
    for longest in [LONG, Duration::MAX] {
        let lock = lock.clone().with_max_hold(longest);
        let held = lock.with_lease(Lease::Fixed(SHORT / 2)).acquire().await?;
        assert!(held.remaining() <= SHORT / 2);
        let lost = in_time(held.lost()).await.expect("it was lost");
        assert_eq!(lost.reason, LostReason::Expired);
    }
    Ok(())
}

async fn a_forgotten_lock_stays_held_for_its_lease(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for lease in [Lease::KeepAlive(SHORT), Lease::Fixed(SHORT)] {
        let asked = Instant::now();
        let held = a.lock(&*name).with_lease(lease).acquire().await?;
        let (view, lost) = (held.held(), held.lost());
        held.forget();
        assert!(!view.is_held());
        assert_eq!(in_time(lost).await, None);
        for client in [&a, &b] {
            let taken = client.lock(&*name).try_acquire().await?;
            let over = asked.elapsed() >= SHORT.mul_f64(0.95);
            assert!(taken.is_none() || over, "it was given back");
            drop(taken);
        }
        // Its own client finds the lock held as well, and acquires it when the lease expires: it is not renewed.
        let next = a.lock(&*name).acquire_timeout(PATIENCE).await?;
        let next = next.expect("it was not renewed");
        let taken = asked.elapsed();
        assert!(taken >= SHORT.mul_f64(0.95), "it was given back: {taken:?}");
        assert!(taken < SHORT + stage.slack(), "it was renewed: {taken:?}");
        next.release().await?;
    }
    Ok(())
}

async fn invalid_leases_are_rejected(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));
    let invalid = |error| matches!(error, Error::InvalidOption { .. });
    let century = Duration::from_secs(100 * 365 * 86_400);
    for lease in [
        Duration::ZERO,
        Duration::from_micros(999),
        century * 2,
        Duration::MAX,
    ] {
        for lease in [Lease::Fixed(lease), Lease::KeepAlive(lease)] {
            let lock = lock.clone().with_lease(lease);
            assert!(lock.acquire().await.is_err_and(invalid), "{lease:?}");
            assert!(lock.try_acquire().await.is_err_and(invalid), "{lease:?}");
            let client = stage.builder().default_lease(lease).connect().await;
            assert!(client.is_err_and(invalid), "{lease:?}");
        }
    }
    let none = lock.clone().with_max_hold(Duration::ZERO);
    assert!(none.acquire().await.is_err_and(invalid));

    // A lease of a century is as valid as one of an hour.
    let held = lock.with_lease(Lease::Fixed(century)).acquire().await?;
    assert!(held.remaining() > century / 2);
    held.release().await
}
