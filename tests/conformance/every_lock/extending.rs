//! Extensions of fixed leases.

use std::time::Duration;

use distlock::{Error, Lease, LostReason};
use tokio::time::sleep;

use crate::stage::{CaseResult, Family, PATIENCE, Stage, in_time, seen};

with_every_lock! {
    an_extended_lease_lasts_longer,
    an_extension_never_shortens,
    a_renewed_lease_cannot_be_extended,
    an_invalid_extension_is_rejected,
    a_lost_lease_cannot_be_extended,
    an_extension_detects_a_lost_lock,
}

const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(600);

async fn an_extended_lease_lasts_longer(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a
        .lock(&*name)
        .with_lease(Lease::Fixed(SHORT))
        .acquire()
        .await?;
    held.extend(SHORT * 3).await?;
    // This moment is past the first end of the lease, and far from the next.
    sleep(SHORT).await;
    held.check()?;
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    // The extended lease expires, too.
    let lost = in_time(held.lost()).await.expect("it was lost");
    assert_eq!(lost.reason, LostReason::Expired);
    in_time(b.lock(&*name).acquire()).await?.release().await
}

async fn an_extension_never_shortens(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = client.lock(&*name).with_lease(Lease::Fixed(LONG));
    let held = lock.acquire().await?;
    held.extend(SHORT).await?;
    assert!(held.remaining() > LONG * 9 / 10);
    let ttl = seen(&client, &name).await?.ttl.expect("it has an end");
    assert!(
        ttl > LONG * 9 / 10,
        "the store took it for shorter: {ttl:?}"
    );
    held.extend(LONG * 2).await?;
    assert!(held.remaining() > LONG * 18 / 10);
    let ttl = seen(&client, &name).await?.ttl.expect("it has an end");
    assert!(
        ttl > LONG * 18 / 10,
        "the store knows nothing of it: {ttl:?}"
    );
    held.release().await
}

async fn a_renewed_lease_cannot_be_extended(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let held = client.lock(stage.name("stock")).acquire().await?;
    let refused = |error| {
        matches!(
            error,
            Error::InvalidOption {
                option: "extend",
                ..
            }
        )
    };
    assert!(held.extend(LONG).await.is_err_and(refused));
    held.check()?;
    held.release().await
}

async fn an_invalid_extension_is_rejected(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));
    let held = lock.with_lease(Lease::Fixed(LONG)).acquire().await?;
    let invalid = |error| matches!(error, Error::InvalidOption { .. });
    for lease in [Duration::ZERO, Duration::from_micros(1), Duration::MAX] {
        assert!(held.extend(lease).await.is_err_and(invalid), "{lease:?}");
    }
    assert!(held.remaining() > LONG * 9 / 10);
    held.release().await
}

async fn a_lost_lease_cannot_be_extended(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let held = client
        .lock(&*name)
        .with_lease(Lease::Fixed(SHORT))
        .acquire()
        .await?;
    in_time(held.lost()).await.expect("it was lost");
    let expired = |error| {
        matches!(
            error,
            Error::Lost {
                reason: LostReason::Expired,
                ..
            }
        )
    };
    assert!(held.extend(LONG).await.is_err_and(expired));
    assert!(!held.is_held());
    let got = client.lock(&*name).acquire_timeout(PATIENCE).await?;
    got.expect("it came too late").release().await
}

/// A fixed lease is not renewed, so the loss was not noticed before.
async fn an_extension_detects_a_lost_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_lease(Lease::Fixed(LONG));
    for taken in [false, true] {
        let held = lock.acquire().await?;
        assert!(b.admin().force_release(&name).await?);
        let next = if taken {
            b.lock(&*name).try_acquire().await?
        } else {
            None
        };
        let reason = if taken {
            a.taken_over(LostReason::Removed)
        } else {
            LostReason::Removed
        };
        let error = held.extend(LONG).await.expect_err("it is lost");
        assert!(
            matches!(error, Error::Lost { reason: why, .. } if why == reason),
            "{error}"
        );
        assert!(!held.is_held());
        let lost = in_time(held.lost()).await.expect("it was lost");
        assert_eq!(lost.reason, reason);
        assert_eq!(next.is_some_and(|next| next.is_held()), taken);
    }
    Ok(())
}
