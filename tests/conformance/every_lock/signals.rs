//! The signal that a lock is lost or released.

use std::time::Duration;

use distlock::{Error, Lease, LostReason};
use tokio::time::{Instant, timeout};

use crate::stage::{CaseResult, Family, Stage, begun, in_time, waits};

with_every_lock! {
    the_signal_is_silent_while_the_lock_is_held,
    the_signal_reports_no_loss_when_the_lock_is_released,
    the_signal_reports_no_loss_when_the_guard_is_dropped,
    the_signal_reports_the_lost_lock,
    the_signal_reports_the_same_to_every_caller_every_time,
    the_signal_outlives_everything_else,
    the_signal_comes_no_sooner_than_the_end_of_validity,
    a_check_reports_the_reason,
    a_handed_off_guard_ends_for_its_giver,
    a_valid_guard_is_not_at_risk,
    ;
    the_signal_comes_when_the_last_guard_of_an_owner_is_released,
}

const SHORT: Duration = Duration::from_secs(3);

async fn the_signal_is_silent_while_the_lock_is_held(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));
    let lease = SHORT * 2;
    let held = lock.with_lease(Lease::KeepAlive(lease)).acquire().await?;
    let mut lost = begun(held.lost()).await;
    // The wait is longer than the lease would last without renewals.
    assert!(timeout(lease * 3 / 2, &mut lost).await.is_err());
    held.release().await?;
    assert_eq!(in_time(lost).await, None);
    Ok(())
}

async fn the_signal_reports_no_loss_when_the_lock_is_released(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let held = client.lock(stage.name("stock")).acquire().await?;
    let early = begun(held.lost()).await;
    let untouched = held.lost();
    let view = held.held();
    held.release().await?;
    assert_eq!(in_time(early).await, None);
    assert_eq!(in_time(untouched).await, None);
    assert_eq!(in_time(view.lost()).await, None);
    assert!(!view.is_held());
    Ok(())
}

async fn the_signal_reports_no_loss_when_the_guard_is_dropped(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let held = client.lock(stage.name("stock")).acquire().await?;
    let lost = begun(held.lost()).await;
    let view = held.held();
    drop(held);
    assert_eq!(in_time(lost).await, None);
    assert!(!view.is_held());
    Ok(())
}

async fn the_signal_reports_the_lost_lock(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = client.lock(&*name).with_lease(Lease::Fixed(SHORT));
    let held = lock.acquire().await?;
    let lost = in_time(held.lost()).await.expect("it was lost");
    assert_eq!(*lost.name, *name);
    assert_eq!(lost.reason, LostReason::Expired);
    assert!(lost.to_string().contains("expired"), "{lost}");
    let error = Error::from(lost);
    assert!(matches!(
        error,
        Error::Lost {
            reason: LostReason::Expired,
            ..
        }
    ));
    assert!(!error.is_transient());
    Ok(())
}

async fn the_signal_reports_the_same_to_every_caller_every_time(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    for release in [false, true] {
        let held = client.lock(&*name).acquire().await?;
        let mut signal = held.lost();
        // The copies are made before the first poll, while one waits, and after the end.
        let untouched = signal.clone();
        let spawned = tokio::spawn(signal.clone());
        let mut waiting = begun(signal.clone()).await;
        let copied = Clone::clone(&*waiting);
        let expected = if release {
            None
        } else {
            Some(LostReason::Removed)
        };
        if release {
            held.release().await?;
        } else {
            client.admin().force_release(&name).await?;
        }
        for _ in 0..3 {
            let answer = in_time(&mut signal).await;
            assert_eq!(answer.map(|lost| lost.reason), expected);
            let answer = in_time(&mut waiting).await;
            assert_eq!(answer.map(|lost| lost.reason), expected);
        }
        let later = signal.clone();
        for copy in [untouched, copied, later] {
            let answer = in_time(copy).await;
            assert_eq!(answer.map(|lost| lost.reason), expected);
        }
        let answer = in_time(spawned).await.expect("it does not panic");
        assert_eq!(answer.map(|lost| lost.reason), expected);
    }
    Ok(())
}

async fn the_signal_comes_when_the_last_guard_of_an_owner_is_released(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));
    let lock = lock.with_owner(&client.new_owner());
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    let mut lost = begun(inner.lost()).await;
    outer.release().await?;
    assert!(waits(&mut lost).await);
    inner.release().await?;
    assert_eq!(in_time(lost).await, None);
    Ok(())
}

async fn the_signal_outlives_everything_else(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));
    let held = lock.with_lease(Lease::Fixed(SHORT)).acquire().await?;
    let signal = held.lost();
    drop(client);
    let lost = in_time(signal.clone()).await.expect("it was lost");
    drop(held);
    assert_eq!(in_time(signal).await, Some(lost));
    Ok(())
}

/// The signal is not much later than the end, either; a check of the clock reports the loss no later than the signal does.
async fn the_signal_comes_no_sooner_than_the_end_of_validity(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));
    let held = lock.with_lease(Lease::Fixed(SHORT)).acquire().await?;
    let asked = Instant::now();
    let left = held.remaining();
    assert!(left > Duration::ZERO && left < SHORT);
    in_time(held.lost()).await.expect("it was lost");
    assert!(!held.is_held());
    let heard = asked.elapsed();
    assert!(heard + Duration::from_millis(2) >= left, "{heard:?}");
    assert!(heard < left + stage.slack(), "{heard:?}");
    Ok(())
}

async fn a_check_reports_the_reason(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let held = client.lock(&*name).acquire().await?;
    let view = held.held();
    held.check()?;
    view.check()?;
    held.release().await?;
    // A released lock is not a lost one.
    let error = view.check().expect_err("it was given back");
    assert!(matches!(&error, Error::Released { name: of } if **of == *name));

    let held = client.lock(&*name).acquire().await?;
    client.admin().force_release(&name).await?;
    let error = held.check().expect_err("it was lost");
    assert!(matches!(
        &error,
        Error::Lost { name: of, reason: LostReason::Removed, .. } if **of == *name
    ));
    Ok(())
}

async fn a_handed_off_guard_ends_for_its_giver(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let held = client.lock(&*name).acquire().await?;
    let (view, lost) = (held.held(), begun(held.lost()).await);
    let waiting = begun(client.lock(&*name).acquire()).await;
    held.release().await?;
    let next = in_time(waiting).await?;
    assert!(!view.is_held());
    assert_eq!(in_time(lost).await, None);
    assert!(next.is_held());
    next.release().await
}

async fn a_valid_guard_is_not_at_risk(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let held = client.lock(stage.name("stock")).acquire().await?;
    assert_eq!(held.at_risk(), None);
    held.release().await
}
